import json
import pathlib
import shutil
import subprocess

import pytest
import tensorflow as tf

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "search.js"
# The script on a class in the place of the browser's.
CALL = """
class Worker { postMessage(message) { console.log(JSON.stringify(message)); } }
%s
for (const data of %s) new Worker().postMessage({ type: 2, data });
"""

pytestmark = pytest.mark.checkout


class SearchTest(tf.test.TestCase):
    def test_the_site_has_the_script(self):
        self.assertIn("\n  - search.js\n", (ROOT / "mkdocs.yml").read_text("utf-8"))

    @pytest.mark.skipif(not shutil.which("node"), reason="needs node")
    def test_a_flag_is_looked_up_by_its_name(self):
        queries = {
            "stop_if": "stop_if",
            "--stop_if": "stop_if",
            "--stop_if=": "stop_if",
            "--stop_if='loss>5'": "stop_if",
            "run_ner --class_weights": "run_ner class_weights",
            "next-sentence": "next-sentence",
            "--": "",
        }
        code = CALL % (SCRIPT.read_text("utf-8"), json.dumps([*queries, {"a": 1}]))
        done = subprocess.run(
            ["node", "-e", code], capture_output=True, text=True, check=True
        )
        posted = [json.loads(line)["data"] for line in done.stdout.splitlines()]
        self.assertEqual(posted, [*queries.values(), {"a": 1}])
