"""README.md and the guide in docs/ are true: see `tests.readme`."""

import pathlib
import re
import shutil
import tempfile

import pytest
import tensorflow as tf

from tests.readme import checks
from tests.readme.project import Project
from tests.readme.running import Runner
from tests.readme.small_files import SmallFiles

ROOT = pathlib.Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.checkout

# README.md and its further pages, in the order of reading: a command may need what one
# before it has written.
GUIDE = (
    "README.md",
    "docs/recipes.md",
    "docs/pretraining.md",
    "docs/scaling.md",
    "docs/finetuning.md",
    "docs/long_texts.md",
    "docs/features.md",
    "docs/checkpoints.md",
    "docs/paper.md",
    "docs/python.md",
    "docs/keras.md",
    "docs/serving.md",
    "docs/annotated_bert.md",
    "docs/speedrun.md",
    "docs/results.md",
    "docs/how_it_works.md",
    "docs/deviations.md",
    "docs/troubleshooting.md",
    "docs/moving_here.md",
)
# The first one's blocks need packages that this environment lacks:
# tests/serving_page_test.py. tests/docs/annotated_test.py runs the second one's; the
# last one's take hours.
RUN_ELSEWHERE = ("docs/serving.md", "docs/annotated_bert.md", "docs/speedrun.md")
# What is checked; of the first ones each command is run too.
FILES = (
    *GUIDE,
    "tfrecords/README.md",
    *("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "colab/README.md"),
)

WRONG = """\
```bash
ls
```

```sh
python -m bert_tf.run_squat --do_train
python -m bert_tf.fill_mask --checkpoint=a --topk=3 "[MASK]"
python -m bert_tf.export_model --checkpoint=a --output_dir=b --format=onx && make tests
python benchmarks/tokenization.py --data_dri=a | pip install -r nothing.txt
```

`--eval_step=3`, `--precision=float32|float8`, `benchmarks/squad.py --onyl`

`bert_tf/run_nar.py`, [c](#nowhere) [d](nowhere.md) `bert_tf.modeling.heads.BertTogger`
"""

FAILING = """\
```sh
python -m bert_tf.score --checkpoint=nowhere a
```

```python
import os
os.kill(os.getpid(), 9)
```

```python
raise SystemExit(3)
```
"""


def read(name):
    return (ROOT / name).read_text("utf-8")


class ReadmeTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.project = Project(ROOT)

    def assert_none(self, check, *arguments, files=FILES):
        found = [
            f"{name}, {problem}"
            for name in files
            for problem in check(read(name), self.project, *arguments)
        ]
        if found:
            self.fail("\n".join(found))

    def test_commands_stand_in_blocks_that_are_run(self):
        self.assert_none(checks.block_problems)

    def test_commands_are_of_flags_and_values_that_there_are(self):
        self.assert_none(checks.command_problems, self.get_temp_dir())

    def test_flags_in_the_text_are_there(self):
        self.assert_none(checks.flag_problems)

    def test_every_page_of_the_guide_is_checked(self):
        pages = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md")}
        self.assertEqual({*GUIDE}, {"README.md", *pages})

    def test_files_modules_functions_and_links_are_there(self):
        for name in FILES:
            self.assert_none(checks.name_problems, name, files=[name])

    def test_what_is_not_so_is_found(self):
        for check, arguments, lines in (
            (checks.block_problems, (), [1, 8, 9]),
            (checks.command_problems, (self.get_temp_dir(),), [6, 7, 8, 8, 9, 9]),
            (checks.flag_problems, (), [12, 12, 12]),
            (checks.name_problems, ("README.md",), [14] * 4),
        ):
            found = check(WRONG, self.project, *arguments)
            numbers = [int(re.match(r"line (\d+)", each)[1]) for each in found]
            self.assertEqual(sorted(numbers), lines)


class RunTest(tf.test.TestCase):
    def new_folder(self):
        # TensorFlow's temporary folder may have a name that a shell must quote.
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def run_commands(self, *names, text_of=read):
        """Runs all, in one folder; what is wrong, and what ran."""
        folder = self.new_folder()
        work = folder / "work"
        work.mkdir(parents=True)
        files = SmallFiles(work, folder)
        runner = Runner(ROOT, folder, work, files.variables)
        failures = []
        with runner.server:
            for name in names:
                for text, seconds, failure in runner.run(text_of(name)):
                    state = "FAILED " if failure else ""
                    print(f"{seconds:6.1f} s  {state}{text}", flush=True)
                    failures += [f"{name}, {failure}"] if failure else []
        return failures, runner

    @pytest.mark.slow
    def test_guide(self):
        names = [name for name in GUIDE if name not in RUN_ELSEWHERE]
        failures, runner = self.run_commands(*names)
        for name in names:
            failures += [f"{name}, {line}" for line in runner.unwritten(read(name))]
        self.assertEmpty(failures, "\n\n".join(failures))

    @pytest.mark.slow
    def test_what_fails_is_told(self):
        failures, _ = self.run_commands("x", text_of=lambda name: FAILING)
        codes = [re.search(r"exit code (\d+)", one)[1] for one in failures]
        self.assertEqual(codes, ["2", "137", "3"])

    @pytest.mark.slow
    def test_readme_of_records(self):
        failures, _ = self.run_commands("tfrecords/README.md")
        self.assertEmpty(failures, "\n\n".join(failures))
