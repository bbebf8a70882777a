"""The notebooks as they are stored. `executed_notebooks_test` runs them."""

import re

import pytest
import tensorflow as tf

from tests.addons.teaching import notebook_files, store_notebooks
from tests.readme.commands import script_of_module

pytestmark = pytest.mark.checkout

NAMES = ["features_and_attention", "finetune_glue", "pretrain_on_tpu", "squad"]
ANNOTATED = "annotated_bert"  # a page's: tests/docs/annotated_test.py
# A code host shows a file of this size, and its outputs.
MOST_BYTES = 1 << 20
# Of the machine that made the outputs, and what a reader need not see.
NOT_IN_OUTPUTS = re.compile(
    r"/(tmp|root|home|work|usr|var|opt)/|warning|Traceback|\x1b", re.IGNORECASE
)
# What all commands have in common stands in one cell.
DEVICE = "find_spec"
MODEL = "The model to start from:"
# Roots of what belongs to the machine, or to Colab, not to somebody's home.
ROOTS = {"content", "dev"}


class StoredNotebooksTest(tf.test.TestCase):
    def test_all_are_there(self):
        self.assertEqual(notebook_files.names(), [ANNOTATED, *NAMES])

    def test_they_are_notebooks_of_format_4(self):
        for name in NAMES:
            content = notebook_files.content(name)
            self.assertEqual((content["nbformat"], content["nbformat_minor"]), (4, 5))
            self.assertContainsSubset(["cells", "metadata"], content)
            self.assertEqual(content["metadata"]["kernelspec"]["name"], "python3")
            identities = [cell["id"] for cell in content["cells"]]
            self.assertLen(set(identities), len(identities))
            for cell in content["cells"]:
                self.assertRegex(cell["id"], r"^[a-zA-Z0-9_-]{1,64}$")
                self.assertIsInstance(cell["metadata"], dict)
                self.assertTrue(all(isinstance(line, str) for line in cell["source"]))
                fields = {"cell_type", "id", "metadata", "source"}
                if cell["cell_type"] == "code":
                    fields |= {"execution_count", "outputs"}
                else:
                    self.assertEqual(cell["cell_type"], "markdown")
                self.assertEqual(set(cell), fields)

    def test_the_outputs_of_one_run_are_stored(self):
        for name in NAMES:
            self.assertLess(notebook_files.path_of(name).stat().st_size, MOST_BYTES)
            cells = [
                cell
                for cell in notebook_files.content(name)["cells"]
                if cell["cell_type"] == "code"
            ]
            self.assertEqual(
                [cell["execution_count"] for cell in cells],
                [*range(1, len(cells) + 1)],
                f"{name}: make notebooks",
            )
            pictures = 0
            for output in (one for cell in cells for one in cell["outputs"]):
                data = output.get("data", {})
                pictures += "image/png" in data
                texts = [output.get("text", []), data.get("text/markdown", [])]
                for line in (line for text in texts for line in text):
                    self.assertNotRegex(line, NOT_IN_OUTPUTS, name)
            self.assertGreater(pictures, 0, name)

    def test_the_address_is_setup_cfgs(self):
        url = store_notebooks.address()
        texts = [
            source
            for name in NAMES
            for kind in ("code", "markdown")
            for source in notebook_files.sources(name, kind)
        ]
        readme = (notebook_files.FOLDER / "README.md").read_text("utf-8")
        for text in (*texts, readme):
            self.assertEqual(
                store_notebooks.with_address(text, url), text, "make notebooks"
            )
        for name in NAMES:
            for text in (readme, notebook_files.sources(name, "markdown")[0]):
                self.assertRegex(text, rf"\({store_notebooks.COLAB}.*colab/{name}\.ip")
                self.assertNotIn("OWNER/NAME", text)

    def test_links_with_and_without_an_address(self):
        there = (
            "(https://colab.research.google.com/github/me/x/blob/main/colab/a.ipynb)"
        )
        plain = '(https://colab.research.google.com/ "Upload colab/a.ipynb")'
        for text in (there, plain):
            for url, wanted in (("", plain), ("https://github.com/me/x.git", there)):
                self.assertEqual(store_notebooks.with_address(text, url), wanted)

    def test_no_path_is_absolute(self):
        for name in NAMES:
            for kind in ("code", "markdown"):
                for source in notebook_files.sources(name, kind):
                    roots = re.findall(r"(?<![\w.:/{}<])/(\w+)", source)
                    self.assertLessEqual(set(roots), ROOTS, f"{name}: {source}")

    def test_commands_have_the_flags_that_are_given(self):
        for name in NAMES:
            sources = notebook_files.sources(name)
            commands = [
                one for each in sources for one in notebook_files.commands(each)
            ]
            self.assertNotEmpty(commands)
            for command in commands:
                self.assertEqual(
                    unknown(command.flags, command), [], f"{name}: {command}"
                )
            for flag in (
                one for each in sources for one in notebook_files.loose_flags(each)
            ):
                self.assertTrue(
                    any(not unknown([flag], command) for command in commands),
                    f"{name}: none of its commands has --{flag}",
                )

    def test_what_they_share_is_the_same_in_all(self):
        for mark, names in ((DEVICE, NAMES), (MODEL, set(NAMES) - {"pretrain_on_tpu"})):
            cells = {
                source
                for name in names
                for source in notebook_files.sources(name)
                if mark in source
            }
            self.assertLen(cells, 1, mark)
        for name in NAMES:
            settings = notebook_files.sources(name)[0]
            for line in (
                'SMALL = False  # @param {type:"boolean"}',
                'OUTPUT = "bert_tf_output"  # @param {type:"string"}',
                'SMALL = SMALL or os.environ.get("BERT_TF_SMALL") == "1"',
            ):
                self.assertIn(line, settings.splitlines(), name)

    def test_every_setting_is_explained(self):
        for name in NAMES:
            fields = re.findall(
                r"^(\w+) = .*# @param", notebook_files.sources(name)[0], re.M
            )
            prose = "\n".join(notebook_files.sources(name, "markdown"))
            for field in fields:
                self.assertIn(f"`{field}`", prose, name)


def unknown(names, command):
    """The flags that a command does not have."""
    flags = script_of_module(command.module).flags()
    return [
        name
        for name in names
        if name not in flags
        and not (
            name.startswith("no") and name[2:] in flags and flags[name[2:]].boolean
        )
    ]
