"""docs/troubleshooting.md quotes messages that this package has."""

import ast
import pathlib
import re

import pytest
import tensorflow as tf

pytestmark = pytest.mark.checkout

_ROOT = pathlib.Path(__file__).parent.parent
# absl's own, which our scripts pass on.
_ABSL = {"Unknown command line flag"}


def _quoted():
    """The messages of the headings, code spans apart."""
    text = (_ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall("^### (.*)", text, re.MULTILINE)
    return [quote for heading in headings for quote in re.findall("`(.*?)`", heading)]


def _messages():
    """All texts, also as a command shows them, with line ends for values in them."""
    found = []
    for folder in ("bert_tf", "tfrecords"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(re.sub("%[a-z]", "\n", node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = node.values
                    found.append(
                        "".join(
                            str(part.value) if isinstance(part, ast.Constant) else "\n"
                            for part in parts
                        )
                    )
    return [re.sub("`([a-z_0-9]+(=[^`]*)?)`", r"--\1", text) for text in found] + found


def _is_part(quote, messages):
    pattern = r"[^\n]*\n[^\n]*".join(re.escape(part) for part in quote.split("..."))
    return any(re.search(pattern, message) for message in messages)


class ReadmeMessagesTest(tf.test.TestCase):
    def test_each_quoted_message_is_one_of_the_package(self):
        messages = _messages()
        quotes = set(_quoted()) - _ABSL
        self.assertGreater(len(quotes), 20)
        unknown = [quote for quote in sorted(quotes) if not _is_part(quote, messages)]
        self.assertEqual(unknown, [])

    def test_what_no_message_has_is_found_out(self):
        messages = ["\n holds a run with \n; this one has \n.", "It is damaged."]
        self.assertTrue(_is_part("holds a run with ...; this one has", messages))
        self.assertFalse(_is_part("holds a run of another kind", messages))
        self.assertFalse(_is_part("damaged ... It", messages))
