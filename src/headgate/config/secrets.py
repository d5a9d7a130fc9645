"""Keeps secrets out of everything that is printed: which keys look secret, and how a text is masked."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MASK = "***"

_SECRET_KEY = re.compile(r"password|passwd|secret|token|jaas|credential|key", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")
_TELLING = 4
"""Texts shorter than this are masked only where they stand in quotes: masking every "1" would leave nothing to read."""


def looks_secret(key: str) -> bool:
    """Better one harmless value masked (`key.deserializer`) than one password shown."""
    return _SECRET_KEY.search(key) is not None


@dataclass(frozen=True, slots=True)
class Redactor:
    """Masks the given texts, and the user info of any URI, wherever they occur."""

    texts: frozenset[str] = frozenset()

    def __call__(self, text: str) -> str:
        text = _USER_INFO.sub(f"{MASK}@", text)
        for secret in sorted(self.texts - {""}, key=len, reverse=True):
            text = text.replace(f"'{secret}'", MASK)
            if len(secret) >= _TELLING:
                text = text.replace(secret, MASK)
        return text

    def also(self, texts: Iterable[str]) -> "Redactor":
        return Redactor(self.texts | frozenset(texts))
