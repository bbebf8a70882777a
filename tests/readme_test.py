"""README.md and the guide in docs/ are true: see `tests.readme`."""

import pathlib
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
    "docs/pretraining.md",
    "docs/scaling.md",
    "docs/finetuning.md",
    "docs/features.md",
    "docs/checkpoints.md",
    "docs/python.md",
    "docs/results.md",
    "docs/deviations.md",
    "docs/troubleshooting.md",
    "docs/moving_here.md",
)
# What is checked; of the first ones each command is run too.
FILES = (
    *GUIDE,
    "tfrecords/README.md",
    *("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "colab/README.md"),
)

WRONG = """\
# Wrong `setup.cfg` --bare

    python -m indented

```bash
ls
```

```sh
python -m bert_tf.run_squat --do_train
python -m bert_tf.fill_mask --checkpoint=a --topk=3 "[MASK]"
python -m bert_tf.export_model --checkpoint=a --output_dir=b --format=onx && make tests
python -m bert_tf.quickstart --output_dir=b yes
VARIABLE=1 python mine.py --task_name=CoLA --data_dir=$A --do_train --no_such=1 \\
  --output_dir=c  # the task of another file
python benchmarks/tokenization.py --data_dri=a | pip install -r nothing.txt
rm -r everything
python -m bert_tf.fill_mask --checkpoint=a --top_k=3 "right"  # --topk
```

```python title="mine.py"
from bert_tf import run_classifier
if __name__ == "__main__":
    run_classifier.main()
```

```text
python -m bert_tf.answer
```

```python
1 +
```

`--eval_step=3`, `--precision=float32|float8`, `--top_k=N`, `pip install --no-deps`,
`benchmarks/squad.py --onyl`, `--nodo_train`, `--nooptimizer`, `--init_head=no`,
`--bert_size
small`

| flag | google-research/bert |
|---|---|
| `--do_trian` | `--other` |

`bert_tf/run_nar.py`, `bert_tf/run_*.py`, [a](tfrecords/README.md) [c](#nowhere)
[b](#wrong-setupcfg---bare) [d](nowhere.md) `bert_tf.modeling.heads.BertTogger`
`bert_tf.config.BertConfig`, `python -m bert_tf.run_nor`, `constraints-none.txt`
"""
WRONG_SAYS = (
    ["line 5: a block is ```bash", "28: a command st", "32: invalid", "3: a command"],
    [
        "10: .*\n.*no such script",
        "11: .*\n.*top_k",
        "12: .*\n.*onx",
        "12: .*\n.*no tests$",
        "13: .*\n.*unexpected argument 'yes'",
        "14: .*\n.*no_such",
        "16: .*\n.*no --data_dri",
        "16: .*\n.*no such file: nothing",
        "17: .*\n.*what 'rm' starts",
    ],
    [
        "35: no script has --eval_step:",
        "35: no script takes --precision=float8",
        "36: .*squad.py has no --onyl",
        "36: no script has --nooptimizer",
        "36: no script takes --init_head=no",
        "42: no script has --do_trian",
        "1: --bare stands outside",
    ],
    [
        "44: there is no bert_tf/run_nar.py",
        "45: there is no bert_tf.modeling.heads.BertTogger",
        "46: there is no bert_tf.run_nor",
        "46: there is no constraints-none",
        "44: no heading is #nowhere",
        "45: there is no nowhere.md",
    ],
)


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
        found = [
            [*checks.block_problems(WRONG, self.project)],
            [*checks.command_problems(WRONG, self.project, self.get_temp_dir())],
            [*checks.flag_problems(WRONG, self.project)],
            [*checks.name_problems(WRONG, self.project, "README.md")],
        ]
        for messages, expected in zip(found, WRONG_SAYS, strict=True):
            self.assertLen(messages, len(expected), messages)
            for message, pattern in zip(messages, expected, strict=True):
                self.assertRegex(message, pattern)


class RunTest(tf.test.TestCase):
    def new_folder(self):
        # TensorFlow's temporary folder may have a name that a shell must quote.
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def run_commands(self, *names):
        """Runs all, in one folder; what is wrong, and what ran."""
        folder = self.new_folder()
        work = folder / "work"
        work.mkdir(parents=True)
        files = SmallFiles(work, folder)
        runner = Runner(ROOT, folder, work, files.variables)
        failures = []
        for name in names:
            for text, seconds, failure in runner.run(read(name)):
                state = "FAILED " if failure else ""
                print(f"{seconds:6.1f} s  {state}{text}", flush=True)
                failures += [f"{name}, {failure}"] if failure else []
        return failures, runner

    def test_what_fails_and_what_is_not_written_is_found(self):
        folder = self.new_folder()
        work = folder / "work"
        work.mkdir(parents=True)
        runner = Runner(ROOT, folder, work, {"WORD_DIR": "word"})
        text = """\
```python title="told.py"
import sys
open("told.txt", "a").write(sys.argv[1])
```

```sh
touch /tmp/made.txt && python told.py $WORD_DIR
make nothing
python told.py --num_train_steps=900000 && python -m bert_tf.no_such_script
```

```python
open("/tmp/also_made.json", "w")
assert len("three") == 3
```

`made.txt`, `also_made.json`, `OUTPUT_DIR/not_made.tsv` and `setup.cfg`.
"""
        failures = [failure for _, _, failure in runner.run(text)]
        self.assertLen(failures, 3)
        self.assertIsNone(failures[0])
        self.assertRegex(str(failures[1]), "line 9: (.*\n)*.*No module named")
        self.assertRegex(str(failures[2]), "line 13: (.*\n)*AssertionError")
        self.assertEqual((work / "told.txt").read_text(), "word--num_train_steps=3")
        self.assertEqual(
            [*runner.unwritten(text)],
            ["line 17: no command has written not_made.tsv"],
        )

    @pytest.mark.slow
    def test_guide(self):
        failures, runner = self.run_commands(*GUIDE)
        for name in GUIDE:
            failures += [f"{name}, {line}" for line in runner.unwritten(read(name))]
        self.assertEmpty(failures, "\n\n".join(failures))

    @pytest.mark.slow
    def test_readme_of_records(self):
        failures, _ = self.run_commands("tfrecords/README.md")
        self.assertEmpty(failures, "\n\n".join(failures))


if __name__ == "__main__":
    tf.test.main()
