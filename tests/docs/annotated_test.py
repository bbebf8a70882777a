"""docs/annotated_bert.md: its code is one_file_bert's, and runs; its other forms."""

import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf

from tests.addons.teaching.store_notebooks import address, with_address

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.checkout

_RUN = """
import matplotlib.pyplot as plt

plt.show = lambda: (print("PICTURE"), plt.close("all"))
exec(compile(open({path!r}).read(), {path!r}, "exec"), {{"__name__": "annotated"}})
"""


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


annotated = load("annotated")
TEXT = annotated.PAGE.read_text("utf-8")


def definitions(source):
    """Statements as text: imports one by one, then what is defined, in order."""
    lines = source.splitlines()
    found = []
    for node in ast.parse(source).body:
        start = min(
            [node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]
        )
        found.append("\n".join(lines[start - 1 : node.end_lineno]))
    return found


class AnnotatedTest(tf.test.TestCase):
    def test_the_code_is_that_of_the_one_file(self):
        docstring, *wanted, last = definitions(
            (DOCS / "one_file_bert.py").read_text("utf-8")
        )
        self.assertStartsWith(docstring, '"""')
        self.assertStartsWith(last, "if __name__")
        there = [
            statement
            for code, info in annotated.blocks(TEXT)
            if not info
            for statement in definitions(code)
        ]
        place = 0
        for statement in wanted:
            self.assertIn(statement, there[place:], statement[:200])
            place = there.index(statement, place) + 1

    def test_each_part_has_an_exercise(self):
        for part in TEXT.split("\n## ")[1:]:
            if not part.startswith("What is needed"):
                self.assertIn("<details><summary>Exercise:", part, part[:80])
        self.assertEqual(TEXT.count("<details>"), TEXT.count("</details>"))

    def test_a_notebook_keeps_the_outputs_of_cells_that_are_the_same(self):
        first = annotated.as_notebook(TEXT)
        code = [cell for cell in first["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(code), 20)
        self.assertNotIn("hidden = 768", "".join("".join(c["source"]) for c in code))
        for cell in code[3:5]:
            cell |= {"execution_count": 4, "outputs": [{"text": ["kept"]}]}
        changed = "".join(code[3]["source"])
        again = annotated.as_notebook(TEXT.replace(changed, "pass"), first)
        kept = [cell for cell in again["cells"] if cell.get("execution_count")]
        self.assertEqual(kept, [code[4]])

    def test_the_stored_notebook_is_the_pages(self):
        path = ROOT / "colab" / "annotated_bert.ipynb"
        stored = json.loads(path.read_text("utf-8"))
        made = annotated.as_notebook(TEXT, stored)
        for cell in made["cells"]:
            source = with_address("".join(cell["source"]), address())
            cell["source"] = source.splitlines(keepends=True)
        self.assertEqual(stored, made, "make notebooks")
        text = "".join("".join(cell["source"]) for cell in made["cells"])
        self.assertIn("](../docs/pretraining.md)", text)

    def test_the_sites_page_shows_what_the_notebook_has_drawn(self):
        notebook = json.loads((ROOT / "colab/annotated_bert.ipynb").read_text("utf-8"))
        shown = annotated.with_outputs(TEXT, notebook)
        pictures = re.findall(r"^!\[(.+)\]\(data:image/png;base64,\w", shown, re.M)
        self.assertLen(pictures, 5)
        self.assertStartsWith(pictures[0], "A picture of twelve examples.")
        self.assertIn("print(text[:110])\n```\n\n```text\nThe capital of", shown)

    def test_keras_ios_form_is_python_and_has_the_text(self):
        source = annotated.as_keras_io(TEXT, "2026/11/29")
        head, *body = ast.parse(source).body
        self.assertIn("Title: The annotated BERT", head.value.value)
        texts = [
            node.value.value
            for node in body
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        self.assertGreater(len(texts), 20)
        self.assertTrue(all(text.startswith("\n") for text in texts))
        self.assertIn("## Fine-tuning", "".join(texts))
        self.assertIn("let `bert_tf` do it: From your own text.", "".join(texts))

    @pytest.mark.jax
    @pytest.mark.slow
    def test_all_of_it_runs_with_the_answers(self):
        code = "\n".join(code for code, _ in annotated.blocks(TEXT))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "annotated_bert.py")
            pathlib.Path(path).write_text(code, "utf-8")
            done = subprocess.run(
                [sys.executable, "-c", _RUN.format(path=path)],
                cwd=folder,
                env=os.environ | {"MPLBACKEND": "agg"},
                capture_output=True,
                text=True,
                timeout=1800,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(done.stdout.count("PICTURE"), 5)
        self.assertRegex(done.stdout, r"speaks Spanish\.\n  0\.[5-9]\d\d spanish")
        with_it, without = map(
            float,
            done.stdout.partition("accuracy: ")[2]
            .partition("\n")[0]
            .split("; without pre-training: "),
        )
        self.assertGreater(with_it, without + 0.2)


if __name__ == "__main__":
    tf.test.main()
