"""A person's hands on the prompts of the inbox."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from tests.console import Browser
from tests.servers import wait_until


def known(browser: Browser) -> None:
    """Wait until the page knows what waits in the inbox."""
    inbox = browser.find("inbox")
    wait_until(lambda: not inbox.find_elements("css selector", "[aria-busy]"), "the list of what waits")


def row(browser: Browser, action: dict) -> WebElement:
    """The row of an action in the inbox, as soon as it is shown."""
    return browser.find(f"line-{action['id']}")


def _is_there(browser: Browser, name: str) -> bool:
    return any(one.is_displayed() for one in browser.all(name))


def pending(browser: Browser, action: dict) -> WebElement:
    """The prompt of an action, as soon as it is shown. In the inbox, which shows one at a time, its row is opened."""
    prompt, line = f"pending-{action['id']}", f"line-{action['id']}"
    if _is_there(browser, "back") and not _is_there(browser, prompt):
        browser.find("back").click()
    browser.wait(lambda: _is_there(browser, prompt) or _is_there(browser, line), f"the action {action['id']}")
    if not _is_there(browser, prompt):
        # by a script: the pointer would rest on the list, which holds what has ended then
        browser.script("arguments[0].click()", browser.find("open", browser.find(line)))
    return browser.find(prompt)


def outcome(browser: Browser, action: dict) -> str:
    """The words in the row of an action that ended."""
    return browser.text(f"outcome-{action['id']}")


def steady(browser: Browser, action: dict) -> WebElement:
    """The prompt of an action, in view, as soon as a press on it counts."""
    prompt = pending(browser, action)
    browser.driver.execute_async_script(
        """
        arguments[0].scrollIntoView({block: "center"});
        dispatchEvent(new Event("resize"));
        requestAnimationFrame(() => requestAnimationFrame(arguments[1]));
        """,
        prompt,
    )
    wait_until(lambda: prompt.find_elements("css selector", "[data-steady]"), "a prompt that is still")
    return prompt


def press(browser: Browser, action: dict, button: str) -> None:
    """Press a button of a prompt once it is still."""
    browser.find(button, steady(browser, action)).click()


def shows(browser: Browser, action: dict) -> None:
    """Wait until the inbox shows an action by itself, and a decision of it counts."""
    browser.find(f"pending-{action['id']}")
    wait_until(lambda: browser.driver.find_elements("css selector", ".detail [data-steady]"), "buttons that are still")


def choose(browser: Browser, action: dict, key: str = "j") -> None:
    """Go to an action of the inbox with a key, and wait until a decision counts."""
    browser.press(key)
    shows(browser, action)


def rest_on(browser: Browser, element: WebElement) -> None:
    """Let the pointer rest on an element."""
    ActionChains(browser.driver).move_to_element(element).perform()


def click_here(browser: Browser, times: int = 1) -> None:
    """Press the pointer's button where the pointer rests."""
    chain = ActionChains(browser.driver, duration=0)
    for _ in range(times):
        chain.click()
    chain.perform()


def hold(browser: Browser, key: str) -> None:
    """Press a key as the keyboard repeats it while it is held down."""
    for is_repeat in (True, True):
        browser.command(
            "Input.dispatchKeyEvent", type="keyDown", key=key, text=key, code=f"Key{key.upper()}", autoRepeat=is_repeat
        )
    browser.command("Input.dispatchKeyEvent", type="keyUp", key=key, code=f"Key{key.upper()}")
