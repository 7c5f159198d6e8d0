"""Walks through the tree of a line: its simple commands, in order."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from tree_sitter import Node

from core.shell.words import RUN_SUBSCRIPT, Command, Doubt, Hole, Lexer, Word, Write

#: Maximum depth of a tree, and number of words of a command.
MOST_TREE, MOST_WORDS = 60, 500

_BLANK = re.compile(r"(?:[ \t]|\\\n)*")
_BLANK_LINES = re.compile(r"(?:[ \t\n]|\\\n)*")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: A word without special characters.
_LITERAL = re.compile(r"[A-Za-z0-9_./:@%+,-]+")

#: A substitution whose text is in the line: `$(cat <<'EOF' …)`.
_COPIED = re.compile(r"\$\(\s*cat\s+<<\s*(['\"])(\w+)\1\n((?:(?!\2\n)[^\n]*\n)*)\2\n\s*\)")

#: Files by which Bash opens connections.
_NETWORK = ("/dev/tcp/", "/dev/udp/")

#: Characters that may come before and after a word.
_BEFORE, _AFTER = frozenset(" \t\n;&|()<>`="), frozenset(" \t\n;&|()<>`")

_EDGES = _BEFORE | {""}

_WORDS = frozenset(
    {
        *("word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "simple_expansion", "expansion"),
        *("command_substitution", "process_substitution", "brace_expression", "translated_string"),
    }
)
_SUBSTITUTIONS = frozenset({"command_substitution", "process_substitution"})

#: Signs that are words to a shell.
_APART = frozenset({"{", "}", "!", "[", "]", "[[", "]]"})

_ENDS = frozenset({";", "&", "\n"})

#: Nodes whose children are statements, with their own words.
_GROUPS = {
    "program": _ENDS,
    "list": _ENDS | {"&&", "||"},
    "pipeline": frozenset({"|", "|&"}),
    "subshell": _ENDS | {"(", ")"},
    "compound_statement": _ENDS | {"{", "}"},
    "do_group": _ENDS | {"do", "done"},
    "if_statement": _ENDS | {"if", "then", "fi"},
    "elif_clause": _ENDS | {"elif", "then"},
    "else_clause": _ENDS | {"else"},
    "while_statement": _ENDS | {"while", "until"},
    "negated_command": frozenset({"!"}),
    "command_substitution": _ENDS | {"$(", "`", ")"},
    "process_substitution": _ENDS | {"<(", ">(", ")"},
}

#: A plain pattern of `case`.
_PATTERN = re.compile(r"[\w.*?/:+-]+")

_UNARY = frozenset(
    {
        *("-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k"),
        *("-n", "-p", "-r", "-s", "-t", "-u", "-w", "-x"),
        *("-z", "-L", "-N", "-O", "-S", "!"),
    }
)
_COMPARED = frozenset({"=", "==", "!=", "-nt", "-ot", "-ef", "-a", "-o"})
_JOINING = frozenset({"&&", "||"})
_NUMBERS = frozenset(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])


@dataclass(frozen=True, slots=True)
class Around:
    is_fed: bool = False  #: it reads a file, a pipe or a text of the line
    text: str | None = None  #: the text of the line that it reads
    writes: tuple[Write, ...] = ()
    wrapped: tuple[str, ...] = ()
    depth: int = 0  #: number of nested shells
    is_posix: bool = False
    reads: tuple[Word, ...] = ()


#: Receives a command as it is written, and its context.
Take = Callable[[Command, Around], None]


class TreeReader:
    """Reads a tree, and passes each simple command on.

    source: the line, each byte of its UTF-8 as one character.
    """

    def __init__(self, source: str, take: Take, doubt: Callable[[str], None]) -> None:
        self._source, self._take, self._doubt = source, take, doubt

    def read(self, node: Node, around: Around, level: int = 0) -> None:
        """Read a statement. A part that is not understood is a doubt, and the reading goes on."""
        try:
            self._read(node, around, level)
        except Doubt as doubt:
            self._doubt(str(doubt))

    def _read(self, node: Node, around: Around, level: int) -> None:
        if level > MOST_TREE:
            raise Doubt("It is nested too deeply")
        if node.type in _GROUPS:
            self._group(node, around, level)
            return
        match node.type:
            case "command" | "declaration_command" | "unset_command":
                self._command(node, around, level)
            case "redirected_statement":
                self._redirected(node, around, level)
            case "variable_assignment":
                self._take(Command((), (self._assignment(node, around, level),), around.writes), around)
            case "variable_assignments":
                self._gaps(node, _BLANK)
                sets = tuple(self._assignment(one, around, level) for one in node.children)
                self._take(Command((), sets, around.writes), around)
            case "for_statement":
                self._for(node, around, level)
            case "case_statement":
                self._case(node, around, level)
            case "test_command":
                self._test(node, around, level)
            case "comment":
                self._comment(node)
            case "function_definition":
                for one in node.named_children[1:]:
                    self.read(one, around, level + 1)
                raise Doubt("It defines a function")
            case _:
                for one in node.named_children:
                    self.read(one, around, level + 1)
                raise Doubt(f"It has a construct that is not followed: {node.type.replace('_', ' ')}")

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte]

    def _gaps(self, node: Node, blank: re.Pattern[str]) -> None:
        """Add a doubt for parts between a node's children, or at its ends, that are not blank."""
        if node.children:
            first, last = node.children[0], node.children[-1]
            ends = self._source[node.start_byte : first.start_byte] + self._source[last.end_byte : node.end_byte]
            if ends.strip(" \t\n"):
                raise Doubt("It has a part that is not understood")
        for before, after in pairwise(node.children):
            gap = self._source[before.end_byte : after.start_byte]
            is_joined = bool(gap.strip("\n")) and not gap.strip("\\\n")  # `pu\` and `sh` on the next line are one word
            if is_joined or not blank.fullmatch(gap):
                raise Doubt("It has a part that is not understood")

    def _group(self, node: Node, around: Around, level: int) -> None:
        is_pipe = node.type == "pipeline"
        for place, one in enumerate(node.children):
            if one.is_named:
                piped = replace(around, is_fed=True, text=None) if is_pipe and place else around
                self.read(one, piped, level + 1)
            elif self._sign(one) not in ("", *_GROUPS[node.type]):
                raise Doubt("It has a sign that is not understood")
        self._gaps(node, _BLANK_LINES)
        if node.type == "program" and self._source[: node.start_byte].strip(" \t\n"):
            raise Doubt("It begins with a part that is not understood")
        if node.type == "program" and self._source[node.end_byte :].strip(" \t\n"):
            raise Doubt("It ends in a part that is not understood")

    def _sign(self, node: Node) -> str:
        """Return the text of a sign or keyword, which must be separate if a shell requires it."""
        sign = self._text(node).strip(" \t\\\n")
        before, after = (
            self._source[node.start_byte - 1 : node.start_byte],
            self._source[node.end_byte : node.end_byte + 1],
        )
        if sign.isalpha() or sign in _APART:
            blank = node.end_byte - node.start_byte > len(sign)
            if (before and before not in _BEFORE and not blank) or (after and after not in _AFTER):
                raise Doubt("It has a sign that shells may read differently")
        return sign

    def _comment(self, node: Node) -> None:
        before = self._source[node.start_byte - 1 : node.start_byte]
        if (before and before not in " \t\n;&|()") or "\n" in self._text(node):
            raise Doubt("It has a comment that is not understood")

    # words

    def _word(self, node: Node, around: Around, level: int) -> Word:
        if node.type not in _WORDS:
            raise Doubt(f"It has a word that is not followed: {node.type.replace('_', ' ')}")
        start, end = node.start_byte, node.end_byte
        before, after = self._source[start - 1 : start], self._source[end : end + 1]
        if (start and before not in _BEFORE) or (
            after and after not in _AFTER and self._source[end : end + 2] != "\\\n"
        ):
            raise Doubt("It has a word that shells may read differently")
        if after and after in "<>" and self._source[start:end].isdigit():
            raise Doubt("It has a number that may be a file's")
        if _LITERAL.fullmatch(self._source, start, end):
            return Word(self._source[start:end])
        lexer = Lexer(self._text(node), self._holes(node, around, level), is_posix=around.is_posix)
        return lexer.word()

    def _holes(self, node: Node, around: Around, level: int, start: int | None = None) -> dict[int, Hole]:
        """Return the substitutions of a word by their position, and read their commands."""
        start = node.start_byte if start is None else start
        holes: dict[int, Hole] = {}
        inside = Around(wrapped=around.wrapped, depth=around.depth, is_posix=around.is_posix)
        open_nodes = [node]
        while open_nodes:
            one = open_nodes.pop()
            if one.type in _SUBSTITUTIONS:
                text = self._text(one).lstrip(" \t\n")
                copied = _COPIED.fullmatch(text)
                holes[one.end_byte - len(text) - start] = Hole(one.end_byte - start, copied and copied[3].rstrip("\n"))
                self.read(one, inside, level + 1)
            else:
                open_nodes.extend(one.children)
        return holes

    def _assignment(self, node: Node, around: Around, level: int) -> tuple[str, Word]:
        names = [one for one in node.children if one.type == "variable_name"]
        values = [one for one in node.named_children if one.type != "variable_name"]
        self._gaps(node, re.compile(""))
        if not names or len(values) > 1 or node.children[0].type != "variable_name":
            raise Doubt("It sets a part of an array")
        name = self._text(names[0])
        if not _NAME.fullmatch(name):
            raise Doubt("It sets something that is not a variable")
        return name, self._word(values[0], around, level) if values else Word("")

    # commands

    def _command(self, node: Node, around: Around, level: int) -> None:
        if node.child_count > MOST_WORDS:
            raise Doubt("It has a command of too many words")
        self._gaps(node, _BLANK)
        words: list[Word] = []
        sets: list[tuple[str, Word]] = []
        for before, one in zip([None, *node.children], node.children, strict=False):
            if before is not None and before.end_byte == one.start_byte:
                raise Doubt("It has words that are not separated")
            match one.type:
                case "variable_assignment":
                    sets.append(self._assignment(one, around, level))
                case "command_name":
                    words.append(self._word(one.children[0], around, level))
                case "file_redirect" | "herestring_redirect":
                    around = self._redirect(one, around, level)
                case "variable_name" | "test_operator" | "=" | "==":
                    words.append(self._plain(one))
                case "export" | "declare" | "local" | "readonly" | "typeset" | "unset" if not one.is_named:
                    words.append(Word(one.type))
                case _:
                    words.append(self._word(one, around, level))
        self._take(Command(tuple(words), tuple(sets), around.writes, around.is_fed, reads=around.reads), around)

    def _plain(self, node: Node) -> Word:
        text = self._text(node)
        if not re.fullmatch(r"[\w=-]+", text):
            raise Doubt("It has a word that is not understood")
        return Word(text)

    def _redirected(self, node: Node, around: Around, level: int) -> None:
        self._gaps(node, _BLANK_LINES)
        bodies = []
        after: list[Node] = []
        for one in node.children:
            if one.type in ("file_redirect", "herestring_redirect"):
                around = self._redirect(one, around, level)
            elif one.type == "heredoc_redirect":
                around = self._heredoc(one, around, level, after)
            else:
                bodies.append(one)
        for one in bodies:
            self.read(one, around, level + 1)
        if not bodies:
            self._take(Command((), (), around.writes, reads=around.reads), around)
        for one in after:
            self.read(one, replace(around, is_fed=True, text=None, writes=()), level + 1)

    def _redirect(self, node: Node, around: Around, level: int) -> Around:
        self._gaps(node, _BLANK)
        signs = [one for one in node.children if not one.is_named]
        targets = [one for one in node.named_children if one.type != "file_descriptor"]
        sign = self._text(signs[0]) if signs else ""
        numbers = [one for one in node.children if one.type == "file_descriptor"]
        if any(
            self._source[one.start_byte - 1 : one.start_byte] not in _EDGES or not self._text(one).isdigit()
            for one in numbers
        ):
            raise Doubt("It has a redirection that shells may read differently")
        if sign in (">&-", "<&-") and not targets:
            return around
        if len(signs) != 1 or len(targets) != 1:
            raise Doubt("It has a redirection that is not understood")
        word = self._word(targets[0], around, level)
        if node.type == "herestring_redirect":
            return replace(around, is_fed=True, text=word.text + "\n" if word.is_whole else None)
        if sign in (">&", "<&") and word.is_whole and re.fullmatch(r"[0-9]+-?|-", word.text):
            return replace(around, is_fed=around.is_fed or (sign == "<&"), text=None if sign == "<&" else around.text)
        if sign == "<":
            is_known = word.is_whole or word == Word("/dev/fd/", "begins")
            if not is_known or word.text.startswith(_NETWORK):
                raise Doubt("It reads text that is not written out, or from the network")
            return replace(around, is_fed=True, text=None, reads=(*around.reads, word))
        if sign not in (">", ">>", ">|", "&>", "&>>", ">&"):
            raise Doubt("It has a redirection that is not understood")
        if word == Word("/dev/null"):
            return around
        return replace(around, writes=(*around.writes, Write(">>" if ">>" in sign else ">", word)))

    def _heredoc(self, node: Node, around: Around, level: int, after: list[Node]) -> Around:
        """Return the context that a heredoc gives to its command. Nodes after it in the line are added to `after`."""
        parts = {one.type: one for one in node.children}
        for one in node.children:
            if one.type in ("pipeline", "list", "command"):
                after.append(one)
            elif one.type in ("file_redirect", "herestring_redirect"):
                around = self._redirect(one, around, level)
            elif not one.is_named and self._text(one) in ("<<", "<<-"):
                continue
            elif one.type not in ("heredoc_start", "heredoc_body", "heredoc_end"):
                after += [inner for inner in [one] if inner.is_named]
                raise Doubt("It has a heredoc that is not understood")
        if any(one.type not in ("pipeline",) for one in after) or len(after) > 1:
            self._doubt("It has a heredoc that is not understood")
        return replace(around, is_fed=True, text=self._body(parts, around, level))

    def _body(self, parts: dict[str, Node], around: Around, level: int) -> str | None:
        """Return the text of a heredoc; None if it has variables. Its lines are checked again."""
        if (
            not {"heredoc_start", "heredoc_end"} <= parts.keys()
            or self._source.count("<<") != self._source.count("<<<") + 1
        ):
            raise Doubt("It has a heredoc that is not understood")
        start = self._text(parts["heredoc_start"])
        word = start.strip("'\"")
        if not re.fullmatch(r"('?)\w+\1|\"\w+\"|\\\w+", start):
            raise Doubt("It has a heredoc that is not understood")
        word = word.lstrip("\\")
        line_end = self._source.find("\n", parts["heredoc_start"].end_byte)
        lines = self._source[line_end + 1 :].split("\n")
        tabs = "\t" if "<<-" in parts else ""
        stripped = [line.lstrip(tabs) if tabs else line for line in lines]
        if line_end < 0 or word not in stripped:
            raise Doubt("It has a heredoc that is not understood")
        length = stripped.index(word)
        end = line_end + 1 + sum(len(line) + 1 for line in lines[: length + 1]) - 1
        if end != parts["heredoc_end"].end_byte:
            raise Doubt("It has a heredoc that is not understood")
        body = "".join(line + "\n" for line in stripped[:length])
        if start[0] in "'\"\\":
            return _utf8(body)
        if tabs and ("$" in body or "`" in body):
            raise Doubt("It has a heredoc that is not understood")
        holes = self._holes(parts["heredoc_body"], around, level, line_end + 1) if "heredoc_body" in parts else {}
        read = Lexer(body, holes).quoted()
        return read.text if read.is_whole else None

    # statements with words

    def _for(self, node: Node, around: Around, level: int) -> None:
        self._gaps(node, _BLANK_LINES)
        for one in node.children:
            if one.type == "do_group":
                self.read(one, around, level + 1)
            elif one.type == "variable_name":
                self._take(Command((), ((self._text(one), Word("", "one")),), around.writes), around)
            elif one.is_named:
                self._word(one, around, level)
            elif self._sign(one) not in ("for", "in", "", *_ENDS):
                raise Doubt("It has a loop that is not understood")

    def _case(self, node: Node, around: Around, level: int) -> None:
        self._gaps(node, _BLANK_LINES)
        for one in node.children:
            if one.type == "case_item":
                self._gaps(one, _BLANK_LINES)
                is_pattern = True
                for part in one.children:
                    if part.is_named and is_pattern:
                        if not _PATTERN.fullmatch(self._text(part)):
                            self._word(part, around, level)
                    elif part.is_named:
                        self.read(part, around, level + 1)
                    elif self._sign(part) not in ("(", ")", "|", ";;", "", *_ENDS):
                        raise Doubt("It has a choice that is not understood")
                    is_pattern &= self._text(part) != ")"
            elif one.is_named:
                self._word(one, around, level)
            elif self._sign(one) not in ("case", "in", "esac", "", *_ENDS):
                raise Doubt("It has a choice that is not understood")

    def _test(self, node: Node, around: Around, level: int) -> None:
        """Read `[ … ]` and `[[ … ]]`, which run nothing unless they compute."""
        is_double = self._text(node.children[0]) == "[["
        signs = [self._sign(one) for one in node.children if not one.is_named]
        if len(node.children) != 3 or signs not in (["[", "]"], ["[[", "]]"]):
            raise Doubt("It has a test that is not understood")
        self._gaps(node, _BLANK)
        self._condition(node.children[1], around, level, is_double=is_double)
        if around.writes:
            self._take(Command((), (), around.writes, reads=around.reads), around)

    def _condition(self, node: Node, around: Around, level: int, *, is_double: bool) -> None:
        if level > MOST_TREE:
            raise Doubt("It is nested too deeply")
        if node.type not in ("unary_expression", "binary_expression"):
            if node.type in ("extglob_pattern", "regex") and is_double and _PATTERN.fullmatch(self._text(node)):
                return
            word = self._word(node, around, level)
            if word.known == "any" and not is_double:
                raise Doubt("It tests words that are not written out")
            if RUN_SUBSCRIPT.search(word.text):
                raise Doubt("It tests a subscript that runs a command")
            return
        self._gaps(node, _BLANK)
        signs = [one for one in node.children if not one.is_named or one.type == "test_operator"]
        others = [one for one in node.children if one not in signs]
        binary = _COMPARED | _JOINING if is_double else _COMPARED | _NUMBERS  # a shell ends `[` at `&&`
        allowed = _UNARY if node.type == "unary_expression" else binary
        is_computed = is_double and all(self._text(one).isdigit() for one in others)
        if len(signs) != 1 or self._text(signs[0]) not in (allowed | _NUMBERS if is_computed else allowed):
            raise Doubt("It has a test that is not followed")
        for one in others:
            self._condition(one, around, level + 1, is_double=is_double)


def _utf8(text: str) -> str:
    return text.encode("latin-1").decode()
