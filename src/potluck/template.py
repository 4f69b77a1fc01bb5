"""Chat templates, which are programs of strangers: a process apart makes each prompt, not only
the first, as a template can wait for a question. transformers does it there, in jinja's sandbox."""

import datetime
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from potluck.confined import Confined, NotReady

CPU_LIMIT_S, WALL_LIMIT_S, LIMIT_BYTES = 1.0, 60.0, 2**30
"""Limits of one prompt. An ordinary one takes .0002 s; the process has .14 GiB of itself."""
LONGEST_BYTES = 2**20
"""Longest prompt, beside the messages in it."""
_lock = threading.Lock()


class OneDate(datetime.datetime):
    """A clock that stands: the date that every template is told, for ever, is the one that Llama 3
    has where it is told none. A prompt with the date of the day would be another one tomorrow, and
    in another time zone."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "OneDate":
        return cls(2024, 7, 26, tzinfo=tz)

    @classmethod
    def today(cls) -> "OneDate":
        return cls.now()

    @classmethod
    def utcnow(cls) -> "OneDate":
        return cls.now()


class TemplateFailed(Exception):
    """A template made no prompt; the message is one line."""


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    words: Mapping[str, object],
    tools: Sequence[Mapping[str, object]] | None = None,
) -> str:
    """Make the prompt for an answer to ``messages``; raise TemplateFailed if there is none.
    ``words`` are what the template finds by name; ``tools`` are schemas of functions. The same
    arguments make the same prompt at any time, on any machine."""
    line = json.dumps([template, messages, words, tools], default=str) + "\n"
    with _lock:
        try:
            said = _worker(os.getpid()).ask(line, WALL_LIMIT_S)
        except NotReady as error:
            said = str(error)
    if not said.startswith('"'):
        raise TemplateFailed(said or f"it takes more than {CPU_LIMIT_S:g} s or 1 GiB")
    return str(json.loads(said))


@cache
def _worker(process: int) -> Confined:  # of this process: a fork starts its own
    return Confined(__name__, CPU_LIMIT_S, LIMIT_BYTES)


def prepare() -> Callable[[bytes], str]:
    """Make what renders a line, in that process."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # larger than the limit, and not needed
    datetime.datetime = OneDate  # type: ignore[misc]  # before transformers takes it from there
    from transformers.utils.chat_template_utils import render_jinja_template

    os.environ["TZ"] = "UTC"  # strftime has letters that ask for the machine's zone
    if hasattr(time, "tzset"):
        time.tzset()

    def rendered(line: bytes) -> str:
        template, messages, words, tools = json.loads(line)
        how = {"chat_template": template, "add_generation_prompt": True, "tools": tools, **words}
        random.seed(0)  # jinja has a filter that draws
        prompt = render_jinja_template([messages], **how)[0][0]
        if (size := len(prompt.encode())) > LONGEST_BYTES + len(line):
            raise ValueError(f"a prompt of {size} bytes")
        return json.dumps(prompt)

    # What is imported at a first prompt takes no template's time: on a busy machine that was 1 s.
    rendered(json.dumps(["{{ messages[0].content }}", [{"content": ""}], {}, None]).encode())
    return rendered


def tool_schemas(tools: Iterable[Callable[..., Any]]) -> list[dict[str, Any]]:
    """Describe functions as templates get them: by their type hints and docstrings, in a process
    without torch if it has none yet. Raise ValueError or TypeError where one lacks them."""
    is_alone = "torch" not in sys.modules
    if is_alone:
        sys.modules["torch"] = None  # type: ignore[assignment]
    from transformers.utils.chat_template_utils import get_json_schema

    schemas = [get_json_schema(tool) for tool in tools]
    if is_alone:
        del sys.modules["torch"]
    return schemas
