import configparser
import pathlib
import re
import unittest

import pytest

pytestmark = pytest.mark.checkout
ROOT = pathlib.Path(__file__).parent.parent
# These ask for the ordinary tensorflow package, or are it.
INSTALLED_APART = {"tensorflow", "tensorflow-text", "keras-nlp"}


class TpuRequirementsTest(unittest.TestCase):
    def test_all_that_the_package_needs_is_there(self):
        setup = configparser.ConfigParser()
        setup.read(ROOT / "setup.cfg")
        needed = setup["options"]["install_requires"].split("\n")
        there = (ROOT / "requirements-tpu.txt").read_text().split("\n")
        for line in filter(None, needed):
            if re.match("[a-zA-Z_-]+", line)[0] not in INSTALLED_APART:
                self.assertIn(line, there)

    def test_nothing_there_asks_for_the_ordinary_tensorflow(self):
        there = (ROOT / "requirements-tpu.txt").read_text()
        for name in INSTALLED_APART:
            self.assertNotRegex(there, rf"(?m)^{name}\b(?!-)")


if __name__ == "__main__":
    unittest.main()
