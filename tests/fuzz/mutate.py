"""Structured mutations: of plain data, of texts and of bytes. The same generator gives the same documents."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

NASTY_TEXTS = (
    "", " ", "\x00", "\x1b[2J", "\x1b]0;title\x07", "\u202etxt", "\x9b31m", "=1+1", "=cmd|' /C calc'!A0",
    "../../etc/passwd",
    "\ud800", "é", "日本", "\U0001f600", "a" * 5000, "a\nb", "%s%n", "{0}", "$(id)", "`id`", "'; DROP", "<script>",
    "nan", "inf", "-1", "0", "1e999", "400Gb/s", "-3GiB", "1e300GB/s", "1e-300GB/s", "NaN GB",
    "infGB/s", "1..0", "1..1e18",
    "5 parsecs", "12GiB/h", "12GB GB", "0x10", "1_000", "\uff11\uff12GB", "+5s", "\u221eGB", "\u00bdGiB", "1,5GB",
    "1 000s",
    "Infinity", "-Infinity", "1e400", "NaNs", "infs", "1e-400s", "3%", "400%", "-5%", "1h30", "2e5/gpu", "1..8..2",
    "1,2,,3", "tp2 pp2", "tp99999999999999999999", "dp8 mbs0", "null", "true", "none*99999999", "64/gpu", "9" * 400,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 255, 65536, 10**6, 10**9, 2**31, 2**63 - 1, 2**63, 2**64, 10**19, 10**200,
    -(10**30), 0.0, -0.0, 0.5, 1e-300, 5e-324, 1e300, 1.7e308, 1e100, 1e-100, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
_SUMS: tuple[Callable[[Any], Any], ...] = (
    lambda old: old + 1, lambda old: old - 1, lambda old: -old, lambda old: old * 2, lambda old: old * 1000,
    lambda old: old / 3, lambda old: old * 1e18, lambda old: old * 1e-18, lambda old: old**9,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, {"a": {"b": 1}}, [1, "a", None])


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside plain data."""
    found = [path] if path else []
    if len(path) > 12:
        return found
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        found += places(value, (*path, key))
    return found


def mutated_data(data: Any, random: Random) -> Any:
    """Return plain data with one to four values, keys or lists changed."""
    data = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        paths = places(data)
        if not paths:
            return random.choice(OTHERS)
        *way, last = random.choice(paths)
        holder = data
        for step in way:
            holder = holder[step]
        random.choice(_CHANGES)(holder, last, random)
    return data


def _value(random: Random, old: Any) -> Any:
    kind = random.random()
    if isinstance(old, int | float) and not isinstance(old, bool) and kind < 0.3:
        return random.choice(_SUMS)(old)
    if isinstance(old, str) and kind < 0.3:
        return mutated_text(old, random)
    if kind < 0.65:
        return random.choice(NUMBERS)
    return random.choice(NASTY_TEXTS) if kind < 0.85 else copy.deepcopy(random.choice(OTHERS))


def _replace(holder: Any, key: Any, random: Random) -> None:
    holder[key] = _value(random, holder[key])


def _remove(holder: Any, key: Any, random: Random) -> None:
    del holder[key]


def _wrap(holder: Any, key: Any, random: Random) -> None:
    holder[key] = [holder[key]] if random.random() < 0.5 else {"a": holder[key]}


def _nest(holder: Any, key: Any, random: Random) -> None:
    for _ in range(random.choice((3, 3, 70))):
        holder[key] = [holder[key]]


def _repeat(holder: Any, key: Any, random: Random) -> None:
    count = random.choice((2, 10, 100, 5000))
    if isinstance(holder[key], list) and len(holder[key]) < 1000:
        holder[key] = holder[key] * count
    elif isinstance(holder, list) and len(holder) < 1000:
        holder.extend([copy.deepcopy(holder[key]) for _ in range(min(count, 1000))])
    elif isinstance(holder[key], str):
        holder[key] = holder[key] * count
    else:
        holder[key] = [holder[key]] * count


def _rename(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, dict):
        new = random.choice(NASTY_TEXTS) if random.random() < 0.5 else mutated_text(str(key), random)
        holder[new] = holder.pop(key)


def _add(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, dict):
        holder[random.choice(NASTY_TEXTS)] = _value(random, holder[key])
    else:
        holder.insert(random.randrange(len(holder) + 1), _value(random, holder[key]))


def _swap(holder: Any, key: Any, random: Random) -> None:
    other = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    *(_replace,) * 8, _remove, _remove, _wrap, _nest, _repeat, _rename, _add, _swap,
)  # fmt: skip


def mutated_text(text: str, random: Random) -> str:
    """Return a text with one to three places changed: characters, numbers, words or lines."""
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(_TEXT_CHANGES)(text, random)
    return text


def _cut(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] if random.random() < 0.5 else text[at:]


def _number(text: str, random: Random) -> str:
    starts = [at for at, char in enumerate(text) if char.isdigit()]
    if not starts:
        return text + str(random.choice(NUMBERS))
    start = end = random.choice(starts)
    while end < len(text) and (text[end].isdigit() or text[end] in ".e+-"):
        end += 1
    new = str(random.choice(NUMBERS)) if random.random() < 0.8 else "9" * random.choice((5, 20, 400))
    return text[:start] + new + text[end:]


def _insert(text: str, random: Random) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(NASTY_TEXTS) + text[at:]


def _lines(text: str, random: Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    change = random.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[random.randrange(len(lines))])
    elif change == 2:
        lines[at : at + 1] = [lines[at]] * random.choice((2, 100, 5000))
    else:
        other = random.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _word(text: str, random: Random) -> str:
    words = text.split(" ")
    words[random.randrange(len(words))] = random.choice(NASTY_TEXTS)
    return " ".join(words)


def _cell(text: str, random: Random) -> str:
    mark = random.choice(",:={}[]\"'#\t|<>()")
    parts = text.split(mark)
    at = random.randrange(len(parts))
    parts[at] = random.choice((random.choice(NASTY_TEXTS), str(random.choice(NUMBERS)), parts[at] * 2, ""))
    return mark.join(parts)


_TEXT_CHANGES: tuple[Callable[[str, Random], str], ...] = (_cut, _number, _number, _insert, _lines, _word, _cell, _cell)


SYNTAX = (
    "&a ", "*a", "<<: *a\n", "!!python/object/apply:os.system ", "!!binary ", "? ", "|\n", "---\n", "...\n",
    "%YAML 1.1\n", "\t", "\r\n", "\ufeff", "{" * 70, "[" * 3000, "- " * 70, '"\\ud800"', "\\x00", "# ",
    ",", ":", '{"a":1,"a":2}',
    "/*", "\x85", "[table]\n", "a.b.c.d = 1\n", '"""', "<!ENTITY a 'b'>", "<![CDATA[", "]]>", "&lt;", "$(",
    "${A}", "\\\n", "<<EOF\n",
)  # fmt: skip
"""What means something to YAML, JSON, TOML, XML or a shell."""


def mutated_syntax(text: str, random: Random) -> str:
    """Return a spelt document with one to three marks of its language put in, or a line of it twice."""
    for _ in range(random.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        at = random.randrange(len(lines))
        if random.random() < 0.3:
            lines.insert(random.randrange(len(lines) + 1), lines[at])
        else:
            place = random.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + random.choice(SYNTAX) + lines[at][place:]
        text = "\n".join(lines)
    return text


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """Return bytes with some flipped, cut out, repeated or put in."""
    found = bytearray(data)
    for _ in range(random.choice((1, 2, 8))):
        at = random.randrange(len(found) + 1)
        change = random.randrange(6)
        if change <= 2 and at < len(found):
            found[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, found[at] ^ 1 << random.randrange(8)))
        elif change == 3:
            del found[at : at + random.choice((1, 8, 1000))]
        elif change == 4:
            found[at:at] = random.choice((b"\0" * 1000, b"\xff" * 10, found[at : at + 50] * random.choice((1, 100))))
        else:
            del found[at:]
    return bytes(found)


def json_text(data: Any) -> str:
    """Return JSON with what strict writers refuse: NaN, infinities, halves of surrogate pairs."""
    return json.dumps(data, ensure_ascii=True)
