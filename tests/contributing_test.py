"""CONTRIBUTING.md beside what it speaks of; and that setup.cfg has every package."""

import configparser
import pathlib
import re
import unittest

import pytest

from tests import import_floors_test

pytestmark = pytest.mark.checkout
ROOT = pathlib.Path(__file__).parent.parent


def setup_cfg():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


class ContributingTest(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

    def test_its_floors_are_those_that_are_enforced(self):
        told = {}
        for floor, modules in re.findall(r"^\| (\d) \| (.*?) \|", self.text, re.M):
            told.update({name: int(floor) for name in re.findall("`(.+?)`", modules)})
        self.assertEqual(told, import_floors_test.FLOORS)

    def test_its_make_targets_are_there(self):
        makefile = (ROOT / "Makefile").read_text("utf-8")
        named = set(re.findall(r"`make ([a-z-]+)", self.text))
        self.assertGreater(len(named), 10)
        for target in named:
            self.assertRegex(makefile, rf"(?m)^{target}:", target)

    def test_its_files_are_there(self):
        made = ("build/", "dist/", ".venv/")
        named = {
            name
            for name in re.findall(r"`([\w./-]+)`", self.text)
            if "/" in name and not name.startswith(made)
        }
        self.assertGreater(len(named), 10)
        for name in named:
            # Folders of bert_tf/ go by their own name.
            there = [(folder / name).exists() for folder in (ROOT, ROOT / "bert_tf")]
            self.assertTrue(any(there), name)


class TpuRequirementsTest(unittest.TestCase):
    # These ask for the ordinary tensorflow package, or are it.
    APART = ("tensorflow", "tensorflow-text", "keras-nlp")

    def test_all_but_what_asks_for_the_ordinary_tensorflow(self):
        text = (ROOT / "requirements-tpu.txt").read_text("utf-8")
        setup = setup_cfg()
        base = setup["options"]["install_requires"]
        for line in (base + setup["options.extras_require"]["train"]).split():
            if re.match("[a-zA-Z_-]+", line)[0] not in self.APART:
                self.assertIn(line, text.split("\n"))
        for name in self.APART:
            self.assertNotRegex(text, rf"(?m)^{name}\b(?!-)")


class PackagesTest(unittest.TestCase):
    def test_setup_cfg_has_every_package(self):
        there = {
            ".".join(path.parent.relative_to(ROOT).parts)
            for path in ROOT.glob("bert_tf/**/__init__.py")
        }
        named = set(setup_cfg()["options"]["packages"].split())
        self.assertEqual(named, there | {"bert_tf.tfrecords"})

    def test_the_version_stands_in_two_places(self):
        import bert_tf

        version = setup_cfg()["metadata"]["version"]
        self.assertEqual(bert_tf.__version__, version)
        changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
        self.assertIn(f"## {version}", changelog)
