"""A person at the labelling page, by selenium."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from label_sessions import Client, served

from polyshot.app.labelling import Session

PATIENCE = 30  # seconds; the machine may be busy


class Page:
    """What a person does with the page, and sees on it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    @contextmanager
    def using(self, session: Session, folder: Path) -> Iterator[Client]:
        """A server that ends once all tabs have left its page."""
        with served(session, folder) as client:
            try:
                self.open(client.url)
                yield client
            finally:
                self.leave()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)).strip()

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def classes(self) -> list[str]:
        return list(self.run("return [...document.querySelectorAll('#classes .title')].map(node => node.textContent)"))

    def card(self) -> str:
        return self.text("#card blockquote") or str(self.run("return document.querySelector('#card img')?.alt ?? ''"))

    def press(self, keys: str) -> None:
        from selenium.webdriver.common.by import By

        self.driver.find_element(By.TAG_NAME, "body").send_keys(keys)

    def click(self, selector: str) -> None:
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.common.by import By

        def clicked() -> bool:
            try:
                self.driver.find_element(By.CSS_SELECTOR, selector).click()
            except StaleElementReferenceException:  # the page was drawn again in between
                return False
            return True

        self.until(clicked)

    def name_class(self, name: str) -> None:
        from selenium.webdriver.common.by import By

        before = self.card()
        self.driver.find_element(By.ID, "class-name").send_keys(f"{name}\n")
        self.until(lambda: self.card() != before and name in self.classes())

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"not in {PATIENCE} s; banner: {self.text('#banner')}; card: {self.card()}"
            time.sleep(0.02)

    def saved(self, n: int) -> None:
        """Wait until n labels are saved and learned."""
        self.until(lambda: self.text("#counts b") == str(n) and self.text("#status") == "saved")

    def open(self, url: str) -> None:
        self.driver.get(url)
        self.until(self.card)

    def new_tab(self, url: str) -> None:
        self.driver.switch_to.new_window("tab")
        self.open(url)

    def leave(self) -> None:
        first, *others = self.driver.window_handles
        for other in others:
            self.driver.switch_to.window(other)
            self.driver.close()
        self.driver.switch_to.window(first)
        self.driver.get("about:blank")
