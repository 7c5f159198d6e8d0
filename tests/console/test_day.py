"""A person's day in the console, by a pointer and by keys: start, decide, review, try the result, take it along."""

from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from settings.specs import BUNDLED
from tests.agents.scripted_model import ScriptedModel, calls, finish, run, scripted_model
from tests.console import Browser
from tests.git_server import Git, repository
from tests.quick import serve
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: the repository as the team calls it; in the sandbox it is a service of the way out
REPOSITORY = "http://git.example.org/shop.git"

PAGE = "<!doctype html><title>Shop</title>\n<h1>Hello</h1>\n"


@pytest.fixture(scope="module")
def git(tmp_path_factory):
    """The address of a Git server with a shop's repository."""
    folder = tmp_path_factory.mktemp("git")
    repository(folder, "shop", index__html=PAGE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("ShopGit", (Git,), {"folder": folder}))
    serve(server)
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def model():
    with scripted_model() as model:
        yield model


@pytest.fixture(scope="module")
def server(tmp_path_factory, git, model):
    """A server whose agents have a model, and whose sandboxes reach the team's Git server as a service."""
    folder = tmp_path_factory.mktemp("day")
    renamed = {"COUNT": "1", "KEY_0": "url.{EGRESS}/git/.insteadOf", "VALUE_0": "http://git.example.org/"}
    variables = "".join(f', GIT_CONFIG_{name} = "{value}"' for name, value in renamed.items())
    text = BUNDLED.read_text().replace('LANG = "C.UTF-8" }', f'LANG = "C.UTF-8"{variables} }}')
    (folder / "specs.toml").write_text(f'{text}\n[[spec.service]]\nname = "git"\nbase_url = "{git}"\n')
    settings = {
        "SANDBOX_SPECS": str(folder / "specs.toml"),
        "LLM_MODEL": "openai/scripted",
        "LLM_API_KEY": "a key of a model",
        "LLM_BASE_URL": model.url,
        "MODEL_PRICES": "scripted=3/15",
    }
    with supervised_server(folder, **settings) as (client, _):
        yield client


#: whether an element is whole in the window, with nothing over its middle; else what is wrong
IN_SIGHT = """
const [element] = arguments, rect = element.getBoundingClientRect();
const where = `${Math.round(rect.left)} ${Math.round(rect.top)} ${Math.round(rect.right)} ${Math.round(rect.bottom)}`;
const isInside = rect.top >= 0 && rect.left >= 0 && rect.bottom <= innerHeight && rect.right <= innerWidth;
if (!isInside) return `outside of ${innerWidth} by ${innerHeight}: ${where}`;
const top = document.elementFromPoint((rect.left + rect.right) / 2, (rect.top + rect.bottom) / 2);
if (element.contains(top)) return "";
return `covered at ${where} by ${top?.outerHTML.slice(0, 120)}`;
"""


#: whether an action with these words waits
WAITS = """
const prompts = [...document.querySelectorAll('[data-testid^="pending-"]')];
return prompts.some((one) => one.innerText.includes(arguments[0]));
"""


class Hands:
    """A person before the page. Nothing is scrolled for a press: what is pressed must be in sight, and uncovered."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def see(self, element: WebElement, name: str) -> None:
        """Wait until an element is in sight."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [self.browser.script(IN_SIGHT, element)]
            return found == [""]

        try:
            wait_until(look, name, seconds=10)
        except pytest.fail.Exception:
            pytest.fail(f"{name} is {found}")

    def press(self, name: str, within: WebElement | None = None) -> None:
        """Press the button of a name."""
        self.hit(self.browser.find(name, within), name)

    def hit(self, element: WebElement, name: str) -> None:
        """Press an element."""
        raise NotImplementedError

    def open_part(self, title: str) -> None:
        """Open a part of the form of a start."""
        raise NotImplementedError

    def write(self, field: str, text: str) -> None:
        """Type into the field of a name."""
        raise NotImplementedError

    def field(self, name: str) -> WebElement:
        return self.browser.driver.find_element("css selector", f"[name={name}], input[data-testid={name}]")

    def show(self, place: str) -> None:
        """Show what may stand in the place of the talk, or the details."""
        raise NotImplementedError

    def decide(self, words: str, verb: str) -> None:
        """Press a button of the prompt whose action has these words."""
        raise NotImplementedError

    def pending(self, words: str) -> WebElement:
        """The prompt whose action has these words, as soon as a press on it counts."""
        shown: list[WebElement] = []

        def look() -> bool:
            shown[:] = [one for one in self.browser.all("pending-*") if words in one.text]
            return bool(shown and shown[0].find_elements("css selector", "[data-steady]"))

        self.browser.wait(look, f"a pending action with {words!r}")
        return shown[0]

    def comment(self, line: WebElement) -> None:
        """Begin a comment on a line of a change."""
        self.hit(line, "the first line that has changed")

    def decided(self, words: str) -> None:
        """Wait until no action with these words waits."""
        self.browser.wait(lambda: not self.browser.script(WAITS, words), f"a decision about {words!r}")


class Mouse(Hands):
    """A person with a pointer."""

    def hit(self, element: WebElement, name: str) -> None:
        self.see(element, name)
        ActionChains(self.browser.driver, duration=50).move_to_element(element).click().perform()

    def comment(self, line: WebElement) -> None:
        super().comment(line)
        self.press("comment-line", line)

    def open_part(self, title: str) -> None:
        self.hit(self.browser.driver.find_element("xpath", f"//summary[starts-with(., '{title}')]"), title)

    def write(self, field: str, text: str) -> None:
        self.hit(self.field(field), field)
        self.browser.press(text)

    def show(self, place: str) -> None:
        self.press(f"{place}-button" if place in ("terminal", "preview") else place)

    def decide(self, words: str, verb: str) -> None:
        self.press(verb, self.pending(words))


class Keyboard(Hands):
    """A person without a pointer."""

    #: stops of Tab to what is pressed next
    MOST_STOPS = 10

    def _reach(self, element: WebElement, name: str) -> None:
        for _ in range(self.MOST_STOPS + 1):
            if self.browser.driver.switch_to.active_element == element:
                return self.see(element, name)
            self.browser.press(Keys.TAB)
        pytest.fail(f"{name} is more than {self.MOST_STOPS} stops of Tab away")

    def hit(self, element: WebElement, name: str) -> None:
        self._reach(element, name)
        self.browser.press(Keys.ENTER)

    def open_part(self, title: str) -> None:
        self._reach(self.browser.driver.find_element("xpath", f"//summary[starts-with(., '{title}')]"), title)
        self.browser.press(Keys.ENTER)

    def write(self, field: str, text: str) -> None:
        self._reach(self.field(field), field)
        self.browser.press(text)

    def show(self, place: str) -> None:
        self.browser.press({"changes": "2", "files": "3", "terminal": "4", "preview": "5", "details": "d"}[place])

    def decide(self, words: str, verb: str) -> None:
        prompt = self.pending(words)
        self.browser.press("j")
        self.browser.wait(lambda: "current" in prompt.get_attribute("class").split(), "the prompt that the key chose")
        self.see(self.browser.find(verb, self.pending(words)), verb)
        self.browser.press({"approve": "a", "edit": "e", "reject": "r"}[verb])


SCRIPT = (
    run("git -C shop log --oneline"),
    run("sed -i 's/Hello/Guten Tag/' shop/index.html"),
    run("cd shop && git push --force origin HEAD:main", "HIGH"),
    run("nohup python3 -m http.server 8123 --bind 127.0.0.1 --directory shop > /dev/null 2>&1 &"),
)


def begin(hands: Hands) -> None:
    """A start with a repository, until its first action waits."""
    browser = hands.browser
    browser.open("start")
    browser.find("start")
    hands.write("message", "Have the shop greet in German.")
    hands.open_part("Repository")
    hands.write("repository", REPOSITORY)
    hands.press("start")
    browser.wait(lambda: "#/conversations/" in browser.driver.current_url, "the conversation")


def decide(hands: Hands) -> None:
    """Two approvals, one of them changed before, and a rejection after which the agent goes on."""
    browser = hands.browser
    hands.decide("git -C shop log", "approve")
    hands.decided("git -C shop log")
    hands.decide("sed -i", "edit")
    browser.find("edited")
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
    browser.press("sed -i 's/Hello/Moin/' shop/index.html")
    hands.pending("sed -i")  # the form has been there for long enough for a press to count, also of fast fingers
    hands.press("approve-edited")
    hands.decided("sed -i")
    hands.decide("git push", "reject")
    browser.find("reason")
    browser.press("Show it to me first.")
    hands.pending("git push")
    hands.press("reject-and-continue")
    hands.decided("git push")
    hands.decide("http.server", "approve")
    hands.decided("http.server")
    browser.says("The shop says Moin.", "timeline")


def review(hands: Hands, model: ScriptedModel) -> None:
    """A comment on a changed line, after which the agent changes it."""
    browser = hands.browser
    model.script[:] = [calls(run("sed -i 's/Moin/Moin moin/' shop/index.html")), calls(finish("As you wish."))]
    hands.show("changes")
    browser.says("<h1>Moin</h1>", "changes-panel")
    [line] = browser.driver.find_elements("css selector", ".lines .line[tabindex='0']")
    hands.comment(line)
    browser.find("comment")
    browser.press("Say it twice.")
    hands.press("send-comments")
    hands.decide("Moin moin", "approve")
    hands.decided("Moin moin")
    browser.says("<h1>Moin moin</h1>", "changes-panel")


def try_out(hands: Hands) -> None:
    """A command in a terminal, and the page that a program of the agent serves, in a tab of its own."""
    browser = hands.browser
    hands.show("terminal")
    browser.wait(lambda: browser.find("terminal-panel").get_attribute("data-state") == "open", "the terminal")
    browser.press("git -C shop status --short\n")
    browser.says("M index.html", "terminal")
    browser.press(Keys.F6, Keys.ESCAPE)
    hands.show("preview")
    hands.press("port-8123")
    wait_until(lambda: len(browser.driver.window_handles) == 2, "the tab of the preview")
    console = browser.driver.current_window_handle
    browser.driver.switch_to.window(next(one for one in browser.driver.window_handles if one != console))
    wait_until(lambda: browser.driver.find_element("tag name", "h1").text == "Moin moin", "the page")
    browser.driver.close()
    browser.driver.switch_to.window(console)


def take_along(hands: Hands, downloads: Path) -> None:
    """The changed file is downloaded, and what the conversation costs is seen."""
    browser = hands.browser
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
    hands.show("files")
    browser.find("find-file")
    hands.write("find-file", "index.html")
    hands.press("file")
    browser.find("file-shown")
    hands.press("download-file")
    wait_until(lambda: "Moin moin" in (downloads / "index.html").read_text(), "the download")
    hands.show("details")
    costs = browser.driver.find_element("xpath", "//dt[text()='Costs']/following-sibling::dd")
    hands.see(costs, "the costs")
    assert costs.text.startswith("$0.0")
    assert " tokens" in costs.text


@pytest.mark.parametrize(
    ("hand", "size"),
    [(Mouse, (1280, 720)), (Mouse, (390, 844)), (Keyboard, (1280, 720))],
    ids=["pointer", "phone", "keyboard"],
)
def test_a_day_is_done_without_scrolling(browsers, server, model, hand, size, tmp_path):
    model.script[:] = [*(calls(one) for one in SCRIPT), calls(finish("The shop says Moin."))]
    browser = browsers()
    width, height = size
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    hands = hand(browser)

    begin(hands)
    decide(hands)
    review(hands, model)
    try_out(hands)
    take_along(hands, tmp_path)
    assert browser.errors() == []
