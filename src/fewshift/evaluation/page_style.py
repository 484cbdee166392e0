"""The look of the page: one sheet, light and dark."""

COLOURS = 12  # --c0 to --c11: methods beyond them take turns
STYLE = """
:root{--ink:#1d2230;--soft:#5d6577;--faint:#9aa1b1;--paper:#fdfdfc;--card:#fff;--rule:#e3e5ea;--accent:#1f5fa8;
--c0:#7a8194;--c1:#d08a00;--c2:#0a8f6c;--c3:#1f6fb8;--c4:#c3423f;--c5:#8a4fb0;--c6:#4aa3c7;--c7:#8d7b1c;
--c8:#d9488b;--c9:#3d7a3a;--c10:#a0653a;--c11:#44505f}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ee;--soft:#a4abba;--faint:#6d7485;--paper:#14161b;--card:#1b1e25;
--rule:#2d313b;--accent:#6aa9ee;--c0:#98a0b3;--c1:#e9ad3e;--c2:#3cc29c;--c3:#5fa5e8;--c4:#ee7c78;--c5:#bb8bdc;
--c6:#7cc5e2;--c7:#c6b454;--c8:#f285b5;--c9:#7fc07b;--c10:#d09a6c;--c11:#c3ccd8}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",sans-serif}
main{max-width:980px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0 0 8px}
h2{font-size:19px;margin:36px 0 10px;padding-top:14px;border-top:2px solid var(--ink)}
h3{font-size:15.5px;margin:30px 0 8px}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(215px,1fr));gap:10px 22px;
margin:12px 0;padding:14px 16px;background:var(--card);border:1px solid var(--rule);border-radius:8px}
dt{font-size:12px;color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}dl>.long{grid-column:1/-1}
.wide{overflow-x:auto;border:1px solid var(--rule);border-radius:8px;background:var(--card);
width:max-content;min-width:100%;max-width:calc(100vw - 56px);
position:relative;left:50%;transform:translateX(-50%)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:4px 12px;text-align:right;white-space:nowrap}
.dense{font-size:12.5px}.dense th,.dense td{padding:4px 5px}.dense small{font-size:11px}
thead th{border-bottom:1px solid var(--faint);font-weight:600}
tbody th{text-align:left;font-weight:400}
thead th:first-child{text-align:left;color:var(--soft);font-weight:400}
tr.group>*{border-top:1px solid var(--rule);color:var(--soft);font-size:12.5px;padding-top:7px}
tbody tr:hover td{background:color-mix(in srgb,var(--accent) 8%,transparent)}
th:first-child{position:sticky;left:0;background:var(--card)}
small{color:var(--soft);font-size:12px}
.note{font-size:12.5px;color:var(--soft);margin:5px 0}
.warn{border-left:3px solid var(--c1);padding:4px 12px;margin:8px 0;background:var(--card)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:22px 0 4px;font-size:13.5px}
.legend span{display:inline-flex;align-items:center;gap:6px}
.key{width:12px;height:12px;border-radius:3px;display:inline-block}
.chart{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI",sans-serif}
.chart text{fill:var(--ink)}.chart .tick,.chart .value{fill:var(--soft);font-size:11px}
.chart .value{font-size:9.5px}
.chart .heading{fill:var(--soft);font-weight:600}.chart .faint{fill:var(--faint);font-size:11px}
.chart .onshade{fill:var(--paper);font-size:11px}.chart .number{font-size:11px}
.grid{stroke:var(--rule)}.zero{stroke:var(--soft)}.whisker{stroke:var(--ink);stroke-width:1.3}
.range{stroke-width:2;opacity:.75}.shade{fill:var(--accent)}
polyline{fill:none;stroke-linejoin:round}.thick{stroke-width:2.6}.thin{stroke-width:1;opacity:.32}
footer{margin-top:40px;font-size:12.5px;color:var(--soft)}
@media print{.wide{overflow:visible;width:auto;max-width:none}}
""" + "".join(
    f".fill{i}{{fill:var(--c{i})}}.key.fill{i}{{background:var(--c{i})}}.line{i}{{stroke:var(--c{i})}}"
    for i in range(COLOURS)
)
