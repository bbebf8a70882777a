"""The weights that a selection keeps: OUTPUT_DIR/best, those of its best run.

    model.ckpt-STEP...      the run's best checkpoint: hard links, or copies
    best.json               {"metric": ..., "step": ..., "value": ..., "run": NAME}
    bert_config.json, vocab.txt, ...    what lies beside it

so that `--init_checkpoint=OUTPUT_DIR/best` means the best run. It appears whole, never
with files of two runs.
"""

import glob
import json
import os

from bert_tf import files
from bert_tf.errors import InputError
from bert_tf.training import checkpoints
from bert_tf.training.checkpoint_files import STATE_NAME, candidates, remove_checkpoint


class BestRun:
    """Keeps the best run's weights, and removes those of the others."""

    def __init__(
        self, folder: str, *, keep_all_runs: bool = False, is_chief: bool = True
    ) -> None:
        self._folder = checkpoints.folder_of(folder)
        self._keep_all_runs = keep_all_runs
        self._is_chief = is_chief

    def keep(self, folder: str) -> None:
        """Makes the best checkpoint of the run in this folder the selection's."""
        name = os.path.basename(folder)
        if not self._is_chief or self._kept() == name:
            return
        source = checkpoints.folder_of(folder)
        best = checkpoints.read_best(folder)
        if best is None:
            raise InputError(
                f"{source} has no checkpoint, but its run is the best one. Bring its"
                " files back, or remove the run's line from selection.jsonl to make it"
                " again."
            )
        # What a kill has left half made.
        for leftover in files.glob(f"{glob.escape(self._folder)}.tmp-*"):
            files.remove(leftover)
        temporary = files.temporary_name(self._folder)
        files.make_folder(temporary)
        for file in files.names_in(source):
            if file != checkpoints.BEST_NAME:
                checkpoints.link(
                    os.path.join(source, file), os.path.join(temporary, file)
                )
        described = {"metric": best.metric, "step": best.step, "value": best.value}
        files.write_atomically(
            os.path.join(temporary, checkpoints.BEST_NAME),
            json.dumps({**described, "run": name}) + "\n",
        )
        if files.exists(self._folder):
            files.remove(self._folder)
        files.replace(temporary, self._folder)

    def discard(self, folder: str) -> None:
        """Removes a run's checkpoints; its metrics and flags stay."""
        if not self._is_chief or self._keep_all_runs or not files.is_folder(folder):
            return
        for prefix in candidates(folder):
            remove_checkpoint(prefix)
        for name in (STATE_NAME, checkpoints.FOLDER_NAME):
            path = os.path.join(folder, name)
            if files.exists(path):
                files.remove(path)

    def _kept(self) -> str | None:
        """The run whose weights lie there."""
        best = checkpoints.read_best_file(self._folder)
        return best.run if best else None
