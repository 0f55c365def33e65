"""A shell script as words: quotes, comments, continued lines, arrays and here-documents, and nothing is executed."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError

_BLANK = " \t\r"
_BREAKS = "\n;&|"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPart:
    """A run of characters of a word: literal or to be expanded, quoted or not."""

    text: str
    quoted: bool
    expand: bool


Word = tuple[WordPart, ...]


def lex(text: str, source: str) -> list[tuple[int, list[Word | str]]]:
    """Return the simple commands of a script, each with its line: words, and ``(`` and ``)`` of arrays as texts.

    Raises:
        RequestError: a quote or bracket is never closed.
    """
    return _Lexer(text.replace("\r\n", "\n"), source).commands()


class _Lexer:
    """Walks over a script once, character by character."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._at = 0
        self._line = 1
        self._commands: list[tuple[int, list[Word | str]]] = []
        self._current: list[Word | str] = []
        self._depth = 0
        self._heredocs: list[str] = []

    def commands(self) -> list[tuple[int, list[Word | str]]]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANK:
                self._at += 1
            elif self._continued():
                pass
            elif char == "#":
                self._skip_comment()
            elif char in _BREAKS:
                self._break(char)
            elif char in "()":
                self._bracket(char)
            elif char in "<>":
                self._redirection()
            else:
                word = self._word()
                if word is not None:
                    self._current.append(word)
        if self._depth:
            raise RequestError(f"{self._source}: a bracket ( is never closed; is the file truncated?")
        self._end_command()
        return self._commands

    def _continued(self) -> bool:
        """Step over a backslash at the end of a line."""
        if not self._text.startswith("\\\n", self._at):
            return False
        self._at += 2
        self._line += 1
        return True

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _break(self, char: str) -> None:
        self._at += 1
        if char == "\n":
            self._line += 1
            self._skip_heredocs()
        if self._depth == 0:
            self._end_command()
            if char in "&|" and self._at < len(self._text) and self._text[self._at] == char:
                self._at += 1
                self._commands.append((self._line, [(WordPart(text=2 * char, quoted=False, expand=False),)]))

    def _end_command(self) -> None:
        if self._current:
            self._commands.append((self._line, self._current))
            self._current = []

    def _bracket(self, char: str) -> None:
        """Arrays open after ``NAME=``; any other bracket (subshell, function) only separates commands."""
        self._at += 1
        last = self._current[-1] if self._current else None
        opens = isinstance(last, tuple) and last[-1].text.endswith("=") and not last[-1].quoted
        if char == "(" and opens and self._depth == 0:
            self._depth = 1
            self._current.append("(")
        elif char == ")" and self._depth:
            self._depth = 0
            self._current.append(")")
            self._end_command()
        elif self._depth == 0:
            self._end_command()

    def _redirection(self) -> None:
        """Skip ``> file``; a here-document is skipped where its lines begin."""
        start = self._at
        last = self._current[-1] if self._current else None
        if isinstance(last, tuple) and last[-1].text.isdecimal() and self._text[start - 1].isdecimal():
            self._current.pop()  # the 2 of 2>&1
        while self._at < len(self._text) and self._text[self._at] in "<>&|":
            self._at += 1
        operator = self._text[start : self._at]
        if self._at < len(self._text) and self._text[self._at] == "-":
            self._at += 1
        while self._at < len(self._text) and self._text[self._at] in _BLANK:
            self._at += 1
        if self._at < len(self._text) and self._text[self._at] not in _BREAKS + "()<>":
            target = self._word()
            if operator == "<<" and target is not None:
                self._heredocs.append("".join(piece.text for piece in target))

    def _skip_heredocs(self) -> None:
        for mark in self._heredocs:
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = len(self._text) if end < 0 else end
                line = self._text[self._at : end]
                self._at = end + 1
                self._line += 1
                if line.strip() == mark:
                    break
        self._heredocs.clear()

    def _word(self) -> Word | None:
        pieces: list[WordPart] = []
        plain = ""

        def close() -> None:
            nonlocal plain
            if plain:
                pieces.append(WordPart(text=plain, quoted=False, expand=True))
                plain = ""

        while self._at < len(self._text):
            char = self._text[self._at]
            if char in _BLANK + _BREAKS + "()<>":
                break
            if self._continued():
                continue
            if char == "'":
                close()
                pieces.append(WordPart(text=self._until("'"), quoted=True, expand=False))
            elif char == '"':
                close()
                pieces += self._double()
            elif char == "\\" and self._at + 1 < len(self._text):
                close()
                pieces.append(WordPart(text=self._text[self._at + 1], quoted=True, expand=False))
                self._at += 2
            elif char == "`":
                plain += "`" + self._until("`") + "`"
            elif char == "$" and self._text[self._at + 1 : self._at + 2] in ("(", "{"):
                plain += self._balanced()
            else:
                plain += char
                self._at += 1
        close()
        return tuple(pieces) or None

    def _until(self, mark: str) -> str:
        end = self._text.find(mark, self._at + 1)
        if end < 0:
            raise self._unclosed(mark)
        inside = self._text[self._at + 1 : end]
        self._line += inside.count("\n")
        self._at = end + 1
        return inside

    def _double(self) -> list[WordPart]:
        """Return what stands between double quotes; ``$(...)`` in it may hold quotes of its own."""
        start, part = self._at, ""
        pieces: list[WordPart] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            if char == '"':
                self._at += 1
                return [*pieces, WordPart(text=part, quoted=True, expand=True)] if part or not pieces else pieces
            if self._continued():
                continue
            if char == "\\" and following and following in '"\\$`':
                pieces += [WordPart(text=part, quoted=True, expand=True)] if part else []
                pieces.append(WordPart(text=following, quoted=True, expand=False))
                part = ""
                self._at += 2
            elif char == "$" and following in ("(", "{"):
                part += self._balanced()
            else:
                self._line += char == "\n"
                part += char
                self._at += 1
        self._at = start
        raise self._unclosed('"')

    def _balanced(self) -> str:
        """Return ``$(...)`` or ``${...}`` with all that is nested in it, as written."""
        start = self._at
        end = balanced_end(self._text, start)
        if end is None:
            raise self._unclosed(self._text[start : start + 2])
        self._line += self._text.count("\n", start, end)
        self._at = end
        return self._text[start:end]

    def _unclosed(self, mark: str) -> RequestError:
        return RequestError(f"{self._source}, line {self._line}: {mark} is never closed; is the file truncated?")


def balanced_end(text: str, start: int) -> int | None:
    """Return where the ``$(`` or ``${`` at ``start`` closes (one past it), None where it does not."""
    closers: list[str] = []
    at = start + 1
    while at < len(text):
        char = text[at]
        if char in "({":
            closers.append(")" if char == "(" else "}")
        elif closers and char == closers[-1]:
            closers.pop()
            if not closers:
                return at + 1
        elif char == "\\":
            at += 1
        at += 1
    return None
