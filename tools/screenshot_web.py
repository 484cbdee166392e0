"""Take docs/images/web.png anew: the page in a headless browser with drawn pictures. Needs the web extra.

Usage: python tools/screenshot_web.py [--kit KIT] [--out docs/images/web.png]
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from fewshift.data.drawn.suite import drawn_domain
from fewshift.estimator.kits import open_kit
from fewshift.web.server import Address, serving

CLASSES = {"broom": 0, "elm": 1, "birch": 2, "cherry": 3}  # of the drawn plants
SHOTS = 5


def main() -> None:
    """Serve, fill, adapt, try, and take the picture."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--kit")
    words.add_argument("--out", type=Path, default=Path("docs/images/web.png"))
    words.add_argument("--port", type=int, default=7861)
    given = words.parse_args()
    with (
        serving(open_kit(given.kit, "cpu", "auto", quiet=True), Address("127.0.0.1", given.port)) as url,
        sync_playwright() as started,
    ):
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1240, "height": 900})
        page.goto(url)
        fill(page)
        taken = page.screenshot(full_page=True)
        browser.close()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    picture.quantize(256, kmeans=2, dither=Image.Dither.NONE).save(given.out, optimize=True)
    print(f"wrote {given.out} ({given.out.stat().st_size / 1e3:.0f} kB)")


def fill(page: Page) -> None:
    """From the empty page to predictions."""
    page.wait_for_selector("#adapt")
    for place, (name, class_id) in enumerate(CLASSES.items(), 1):
        if place == 4:
            page.click("#add-class")
        page.wait_for_selector(f"#images-{place}")
        page.fill(f"#name-{place} input, #name-{place} textarea", name)
        drop(page, f"#images-{place}", name, [("plants", class_id, shot) for shot in range(SHOTS)])
    page.click("#adapt")
    page.wait_for_selector("#said .notice.good", timeout=300_000)
    tries = [("plants", 0, 7), ("plants", 1, 21), ("plants", 2, 22), ("plants", 3, 23), ("plants", 3, 24)]
    drop(page, "#tries", "photo", [*tries, ("cells", 3, 0)])
    page.wait_for_selector("#answers .card", timeout=60_000)
    page.get_by_role("tab", name="Domains").click()
    page.mouse.move(2, 2)
    page.wait_for_timeout(1000)  # the last thumbnails fade in


def drop(page: Page, slot: str, name: str, pictures: list[tuple[str, int, int]]) -> None:
    """Upload drawn pictures: (domain, class, image)."""
    files = []
    for place, (domain, class_id, image) in enumerate(pictures, 1):
        file = io.BytesIO()
        Image.fromarray(drawn_domain(domain).source.read([(class_id, image)])[0]).save(file, "PNG")
        files.append({"name": f"{name}-{place}.png", "mimeType": "image/png", "buffer": file.getvalue()})
    page.set_input_files(f"{slot} input[type=file]", files)  # type: ignore[arg-type]
    page.wait_for_selector(f"{slot} .thumbnail-item")


if __name__ == "__main__":
    main()
