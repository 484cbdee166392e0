"""The look of what our own code draws on the page; gradio's light and dark classes decide the colours."""

STYLE = """
.gradio-container{max-width:1240px!important;width:100%!important;margin:0 auto!important}
:root{--fs-ink:#1d2230;--fs-soft:#5d6577;--fs-rule:#e3e5ea;--fs-card:#fff;--fs-accent:#1f6fb8;
--fs-good:#0a8f6c;
--fs-warn:#b26a00;--fs-bad:#b3312e;--fs-track:#eef0f4}
.dark{--fs-ink:#e6e8ee;--fs-soft:#a4abba;--fs-rule:#343946;--fs-card:#1b1e25;--fs-accent:#5fa5e8;
--fs-good:#3cc29c;
--fs-warn:#e9ad3e;--fs-bad:#ee7c78;--fs-track:#2a2e38}
#classes{display:grid;grid-template-columns:repeat(auto-fill,minmax(240px,1fr));gap:12px}
#classes .class{border:1px solid var(--fs-rule);border-radius:10px;padding:10px;gap:8px;
background:var(--fs-card)}
.drop{border:1px dashed var(--fs-rule)!important;border-radius:8px}
.drop label[data-testid=block-label]{display:none}
.drop [data-testid=upload-text]{font-size:0;padding:0}
.drop [data-testid=upload-text]::after{content:"Drop images here, or click";font-size:13px}
.drop .grid-wrap{padding:6px}
.drop .grid-container{height:auto!important;grid-auto-rows:max-content!important;align-content:start}
.drop .grid-container{grid-template-columns:repeat(auto-fill,minmax(58px,1fr))!important;gap:6px}
.drop .thumbnail-item,.drop .grid-container img{aspect-ratio:1;height:auto;width:100%}
#tries .grid-container{grid-template-columns:repeat(auto-fill,84px)!important}
#said .empty{padding:44px 22px}
#said .progress-text{display:none}
.html-container{padding:0!important}
.fs{color:var(--fs-ink);font-size:14px;line-height:1.5}
.fs h1{font-size:26px;margin:6px 0 2px;color:var(--fs-ink)}
.fs h2{font-size:17px;margin:4px 0 2px;color:var(--fs-ink)}
.fs h3{font-size:14px;margin:14px 0 4px;color:var(--fs-ink)}
.fs p{margin:2px 0 6px;color:var(--fs-soft)}
.fs p b{color:var(--fs-ink)}
.fs .notice{border-left:3px solid var(--fs-accent);background:var(--fs-track);padding:8px 12px;
border-radius:4px;
color:var(--fs-ink);margin:2px 0 8px}
.fs .notice.good{border-color:var(--fs-good)}.fs .notice.bad{border-color:var(--fs-bad)}
.fs .notice.warn{border-color:var(--fs-warn)}
.fs .empty{border:1px dashed var(--fs-rule);border-radius:8px;padding:22px;text-align:center;
color:var(--fs-soft)}
.fs ul{margin:2px 0 6px;padding-left:20px}.fs li{margin:2px 0}
.fs .row{display:grid;grid-template-columns:minmax(90px,32%) 1fr 56px;gap:10px;align-items:center;
margin:3px 0}
.fs .row .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.fs .row .number{text-align:right;white-space:nowrap;color:var(--fs-soft);font-variant-numeric:tabular-nums}
.fs .bar{height:12px;border-radius:6px;background:var(--fs-track);overflow:hidden}
.fs .bar i{display:block;height:100%;border-radius:6px;background:var(--fs-accent)}
.fs .row.first .name{font-weight:600}.fs .row.first .bar i{background:var(--fs-good)}
.fs .cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:12px}
.fs .card{display:grid;grid-template-columns:96px 1fr;gap:12px;border:1px solid var(--fs-rule);
border-radius:10px;
background:var(--fs-card);padding:10px;align-items:start}
.fs .card img{width:96px;height:96px;object-fit:contain;border-radius:6px;background:var(--fs-track);
margin:0}
.fs .card .file{font-size:12px;color:var(--fs-soft);overflow:hidden;text-overflow:ellipsis;
white-space:nowrap}
.fs .card .says{font-size:16px;font-weight:600;overflow-wrap:anywhere}
.fs .card .row{grid-template-columns:36% 1fr 54px;gap:6px;font-size:12.5px;margin:1px 0}
.fs .card .bar{height:8px}
.fs .flag{display:inline-block;font-size:12px;padding:1px 8px;border-radius:9px;color:var(--fs-warn);
border:1px solid var(--fs-warn);margin-left:6px;font-weight:400}
.fs svg.chart{display:block;width:100%;height:auto;font:12px system-ui,-apple-system,"Segoe UI",sans-serif}
.fs .chart text{fill:var(--fs-ink)}.fs .chart .tick{fill:var(--fs-soft);font-size:12px}
.fs .chart .heading{fill:var(--fs-soft);font-weight:600}
.fs .chart .grid{stroke:var(--fs-rule)}.fs .chart polyline{fill:none;stroke-linejoin:round;stroke-width:2.4}
.fs .chart .line0{stroke:var(--fs-accent)}.fs .chart .line1{stroke:var(--fs-good)}
.fs .chart .dot0{fill:var(--fs-accent)}
.fs .chart .dot1{fill:var(--fs-good)}.fs .chart .shade{fill:var(--fs-accent)}
.fs .chart .cell{fill:var(--fs-track)}
"""
