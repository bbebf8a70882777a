import dataclasses

from bert_tf.base.finished import FinishedResults
from tests.script_case import FolderCase


@dataclasses.dataclass(frozen=True)
class Result:
    count: int
    notes: dict


class FinishedResultsTest(FolderCase):
    def results(self):
        return FinishedResults(self.path("results.json"), Result)

    def test_a_result_is_found_by_what_it_was_made_from(self):
        result = Result(3, {"a": [1]})
        self.assertIsNone(self.results().find("x", {"seed": 1}))
        self.results().keep("x", {"seed": 1, "size": 2}, result)
        self.results().keep("y", [], Result(4, {}))
        self.assertEqual(self.results().find("x", {"size": 2, "seed": 1}), result)
        self.assertIsNone(self.results().find("x", {"seed": 2, "size": 2}))
        self.assertIsNone(self.results().find("z", {"seed": 1, "size": 2}))

    def test_a_damaged_file_holds_nothing(self):
        self.results().keep("x", 1, Result(3, {}))
        good = self.read("results.json")
        for damaged in ("", "[]", "{}", good[:-9], good.replace('"count"', '"cuont"')):
            self.write("results.json", damaged)
            with self.assertLogs(level="WARNING") as logs:
                self.assertIsNone(self.results().find("x", 1))
            self.assertRegex(logs.output[0], "results.json.* made again")
