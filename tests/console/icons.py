"""Draws the icons of the manifest from console/icon.svg: `python -m tests.console.icons`.

A maskable icon has no corners of its own: a phone cuts it, and leaves at least the circle that has the sign.
"""

import re
from base64 import b64decode
from urllib.parse import quote

from tests.console import Browser, end_browsers
from tests.servers import PROJECT

CONSOLE = PROJECT / "console"

#: file, pixels, and whether it is maskable
ICONS = (("192", 192, False), ("512", 512, False), ("maskable-512", 512, True))


def drawn(browser: Browser, svg: str, size: int) -> bytes:
    browser.driver.get(f"data:text/html,<style>*{{margin:0}}svg{{display:block}}</style>{quote(svg)}")
    browser.command("Emulation.setDefaultBackgroundColorOverride", color={"r": 0, "g": 0, "b": 0, "a": 0})
    clip = {"x": 0, "y": 0, "width": size, "height": size, "scale": 1}
    return b64decode(browser.command("Page.captureScreenshot", format="png", clip=clip)["data"])


def main() -> None:
    browser, source = Browser("", width=800, height=800), (CONSOLE / "icon.svg").read_text()
    for name, size, is_maskable in ICONS:
        svg = re.sub("<svg ", f'<svg width="{size}" height="{size}" ', source, count=1)
        if is_maskable:
            svg = svg.replace(' rx="8"', "")
        (CONSOLE / "icons" / f"{name}.png").write_bytes(drawn(browser, svg, size))
    browser.close()
    end_browsers()


if __name__ == "__main__":
    main()
