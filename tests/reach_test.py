"""What a reader meets: the files and lines that a command reaches by its imports.

Imports within functions count, those for types alone do not; an add-on that the core
knows by its name is no import. A commit that raises a limit says which feature needs
it.
"""

import pytest
import tensorflow as tf

from tests import import_floors_test as house

pytestmark = pytest.mark.checkout

# Command -> the most files and lines.
LIMITS = {
    "tfrecords.create_pretraining_data": (32, 8_864),
    "bert_tf.run_pretraining": (68, 21_610),
    "bert_tf.run_classifier": (74, 22_921),
    "bert_tf.export_model": (73, 23_991),
}
MOST_LINES_OF_THE_CORE = 38_706
MOST_LINES = 56_691


class ReachTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.lines = {}
        self.uses = {}
        for path in house.our_files():
            module = house.module_name(path)
            self.lines[module] = len(path.read_text("utf-8").splitlines())
            self.uses[module] = [
                name for name, _, when in house.imports_of(path) if when != house.NEVER
            ]

    def reached(self, command):
        seen, waiting = set(), [command]
        while waiting:
            name = waiting.pop()
            name = name if name in self.lines else name.rpartition(".")[0]
            name = name.replace("bert_tf.tfrecords", "tfrecords")
            if name in self.lines and name not in seen:
                seen.add(name)
                waiting += self.uses[name]
        return seen

    def test_commands_reach_no_more_than_their_limits(self):
        over = []
        for command, limits in LIMITS.items():
            seen = self.reached(command)
            counts = len(seen), sum(self.lines[module] for module in seen)
            print(
                f"{command}: {counts[0]} files, {counts[1]:,} lines"
                f" (at most {limits[0]}, {limits[1]:,})"
            )
            over += [command] * (counts[0] > limits[0] or counts[1] > limits[1])
        self.assertEqual(over, [])

    def test_the_core_and_all_have_no_more_lines_than_their_limits(self):
        total = sum(self.lines.values())
        core = sum(
            count
            for module, count in self.lines.items()
            if not module.startswith(house.ADDONS)
        )
        print(
            f"core: {core:,} lines (at most {MOST_LINES_OF_THE_CORE:,}); all: {total:,}"
            f" (at most {MOST_LINES:,})"
        )
        self.assertLessEqual(core, MOST_LINES_OF_THE_CORE)
        self.assertLessEqual(total, MOST_LINES)


if __name__ == "__main__":
    tf.test.main()
