"""The YAML block at the head of a page, read strictly and with the line of every value.

YAML guesses types, and guesses wrong: the version `12.10` becomes the number 12.1, and a date in a title
becomes a date. So only null, booleans and integers are resolved here; every other scalar stays the
text that stands in the file, and the pydantic record that wants a float or a date parses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kwiki_ingest.errors import PageError

FENCE = "---"
_PREFIX = "tag:yaml.org,2002:"
_TEXT_TAGS = {_PREFIX + name for name in ("str", "float", "timestamp", "merge", "value")}


@dataclass(frozen=True)
class YamlBlock:
    """A parsed mapping that can say on which line of its file each value stands."""

    values: dict[str, Any]
    path: str
    first_line: int
    _root: MappingNode

    def line_of(self, location: tuple[str | int, ...]) -> int:
        """The line of the value at `location` (keys and list positions), or of its nearest parent."""
        node: Node = self._root
        line = self.first_line
        for step in location:
            found = _child(node, step)
            if found is None:
                break
            node, mark = found
            line = mark.line + self.first_line
        return line

    def error(self, location: tuple[str | int, ...], reason: str) -> PageError:
        """A PageError that points at `location`."""
        return PageError(self.path, self.line_of(location), reason)


def split_page(text: str, path: str) -> tuple[YamlBlock, str]:
    """Front matter and body of a page. `text` has LF line ends and no byte order mark.

    Raises PageError for a missing, unclosed, second, non-mapping or malformed block.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        raise PageError(path, 1, "the page must open with a front matter block between two lines of `---`")
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise PageError(path, 1, "the front matter block is not closed by a line of `---`")
    body_lines = lines[end + 1 :]
    for offset, line in enumerate(body_lines):
        if line.strip() == FENCE:
            raise PageError(
                path, end + 2 + offset, "a second `---` block opens the body; keep one front matter block"
            )
        if line.strip():
            break
    block = parse_yaml("\n".join(lines[1:end]), path, first_line=2)
    return block, "\n".join(body_lines).strip("\n") + "\n"


def parse_yaml(text: str, path: str, first_line: int = 1) -> YamlBlock:
    """Parse one YAML mapping. Refuses duplicate keys, anchors, aliases and tags; raises PageError."""
    try:
        root = YAML(typ="safe", pure=True).compose(text)
        if not isinstance(root, MappingNode):
            raise PageError(path, first_line, "the YAML must be a mapping of `key: value` lines")
        return YamlBlock(_value(root, path, first_line), path, first_line, root)
    except MarkedYAMLError as error:
        raise _syntax_error(error, path, first_line) from error
    except YAMLError as error:
        reason = str(error).splitlines()[0]
        raise PageError(path, first_line, f"YAML: {reason}") from error
    except RecursionError as error:
        raise PageError(path, first_line, "the YAML is nested too deeply") from error


def _syntax_error(error: MarkedYAMLError, path: str, first_line: int) -> PageError:
    # An unclosed quote or bracket is noticed lines later, at best: point at where it opens.
    unclosed = (error.context or "").startswith(("while scanning a quoted", "while parsing a flow"))
    mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
    line = first_line + (mark.line if mark else 0)
    reason = error.problem or error.context or "malformed"
    if reason.startswith("mapping values are not allowed"):
        reason = "quote a value that contains a colon and a space"
    return PageError(path, line, f"YAML: {reason}")


def _value(node: Node, path: str, first_line: int) -> Any:
    line = node.start_mark.line + first_line
    if node.anchor:
        raise PageError(path, line, f"YAML anchors and aliases are not allowed (`&{node.anchor}`)")
    if isinstance(node, SequenceNode):
        return [_value(item, path, first_line) for item in node.value]
    if isinstance(node, MappingNode):
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            key_line = key_node.start_mark.line + first_line
            if not isinstance(key_node, ScalarNode):
                raise PageError(path, key_line, "a key must be a plain word")
            if key in values:
                raise PageError(path, key_line, f"the key `{key}` stands twice")
            values[key] = _value(value_node, path, first_line)
        return values
    return _scalar(node, path, line)


def _scalar(node: Node, path: str, line: int) -> Any:
    tag, text = str(node.tag), str(node.value)
    if tag == _PREFIX + "null":
        return None
    if tag == _PREFIX + "bool":
        return text.lower() == "true"
    if tag == _PREFIX + "int":
        try:
            return int(text.replace("_", ""), 0)
        except ValueError:  # a number such as 0012, which Python does not read: keep the text
            return text
    if tag in _TEXT_TAGS:
        return text
    raise PageError(path, line, f"the YAML tag `{tag}` is not allowed")


def _child(node: Node, step: str | int) -> tuple[Node, Any] | None:
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value, key.start_mark
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item, item.start_mark
    return None
