"""A person's hands on the prompts of the inbox."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from tests.console import Browser
from tests.servers import wait_until


def known(browser: Browser) -> None:
    """Wait until the page knows what waits in the inbox."""
    inbox = browser.find("inbox")
    wait_until(lambda: not inbox.find_elements("css selector", "[aria-busy]"), "the list of what waits")


def pending(browser: Browser, action: dict) -> WebElement:
    """The prompt of an action, as soon as it is shown."""
    return browser.find(f"pending-{action['id']}")


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


def choose(browser: Browser, action: dict, key: str = "j") -> None:
    """Go to a prompt with a key, and wait until a decision counts."""
    browser.press(key)
    prompt = pending(browser, action)
    wait_until(lambda: "current" in prompt.get_attribute("class").split(), "the prompt that the key chose")
    steady(browser, action)


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
