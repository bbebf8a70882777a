"""What Hugging Face's fine-tuning loops share: PyTorch, no line of bert_tf.

The loop that transformers' documentation writes without its Trainer: AdamW with weight
decay outside LayerNorm and bias, gradients clipped at a global norm of 1, the linear
schedule with warmup, and autocast for bfloat16.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
import transformers


def prepare(job: dict[str, Any]) -> None:
    """Sets what holds for the whole process.

    Args:
        job: has threads and seed.
    """
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(job["threads"])
    transformers.set_seed(job["seed"])


class Training:
    """A model's optimizer and its schedule.

    Args:
        model: one of transformers' with a head, which gives a loss where it has labels.
        job: has batch_size, learning_rate, epochs, warmup_proportion and precision
            ("float32", "bfloat16").
        num_examples: of an epoch.

    Attributes:
        num_steps: of the whole training.
    """

    def __init__(
        self, model: torch.nn.Module, job: dict[str, Any], num_examples: int
    ) -> None:
        self.num_steps = int(num_examples / job["batch_size"] * job["epochs"])
        self._model = model
        self._is_half = job["precision"] == "bfloat16"
        decayed: list[torch.nn.Parameter] = []
        plain: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            is_plain = name.endswith("bias") or "LayerNorm" in name
            (plain if is_plain else decayed).append(parameter)
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": 0.01},
                {"params": plain, "weight_decay": 0.0},
            ],
            lr=job["learning_rate"],
            eps=1e-6,
            fused=True,
        )
        self._schedule = transformers.get_linear_schedule_with_warmup(
            self._optimizer,
            int(self.num_steps * job["warmup_proportion"]),
            self.num_steps,
        )

    def half(self) -> contextlib.AbstractContextManager:
        """Where the model computes in the job's precision."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self._is_half)

    def step(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """One step, on what the model takes; the loss before it."""
        self._model.train()
        with self.half():
            loss = self._model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        return loss.detach()
