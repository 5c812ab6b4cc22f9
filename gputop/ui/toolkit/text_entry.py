"""One line of text being typed, as a value: the screens draw it into their own lines."""

from __future__ import annotations

from textual import events

from gputop.text import skip, width
from gputop.ui.toolkit.cells import Line

LIMIT = 200


class Entry:
    """A text and a place in it."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.at = len(text)

    def key(self, event: events.Key) -> bool:
        """Take a key press; whether it was one for a text being typed."""
        match event.key:
            case "left":
                self.at = max(0, self.at - 1)
            case "right":
                self.at = min(len(self.text), self.at + 1)
            case "home" | "ctrl+a":
                self.at = 0
            case "end" | "ctrl+e":
                self.at = len(self.text)
            case "backspace":
                if self.at:
                    self.text = self.text[: self.at - 1] + self.text[self.at :]
                    self.at -= 1
            case "delete":
                self.text = self.text[: self.at] + self.text[self.at + 1 :]
            case "ctrl+u":
                self.text, self.at = self.text[self.at :], 0
            case _:
                if event.character is None or not event.is_printable:
                    return False
                self.insert(event.character)
        return True

    def insert(self, text: str) -> None:
        """Type *text*, of which only what can be printed is taken."""
        text = "".join(character for character in text if character.isprintable())[: LIMIT - len(self.text)]
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)

    def line(self, cells: int) -> Line:
        """The text in exactly *cells* cells, scrolled so that the cursor is seen."""
        before, under, after = self.text[: self.at], self.text[self.at : self.at + 1] or " ", self.text[self.at + 1 :]
        if (hidden := width(before) + width(under) - cells) > 0:
            before = skip(before, hidden)
        room = cells - width(before) - width(under)
        while width(after) > room:
            after = after[:-1]
        return (
            (before, "title@track"),
            (under, "title+r@track"),
            (after + " " * (room - width(after)), "title@track"),
        )
