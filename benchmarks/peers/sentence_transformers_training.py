"""sentence-transformers' side of benchmarks/embeddings.py: no line of bert_tf.

    python sentence_transformers_training.py JOBS

JOBS is a file with a list of jobs in JSON: checkpoint (a sentence-transformers folder),
columns (name -> texts or scores, in the order in which they are trained on), loss,
batch_size, learning_rate, num_steps, num_warmup_steps, max_seq_length, threads, seed,
and dev, the columns of scored pairs; or else checkpoint and encode, a list of texts.

It trains with SentenceTransformerTrainer and prints a list in JSON: each step's loss,
as the loss gives it, and the correlations of the cosines on dev; or the texts' vectors.
"""

import json
import pathlib
import sys
import tempfile
from typing import Any

import datasets
import sentence_transformers
import torch
import transformers
from scipy import stats
from sentence_transformers import losses

LOSSES = {
    "multiple_negatives_ranking": losses.MultipleNegativesRankingLoss,
    "simcse": losses.MultipleNegativesRankingLoss,  # of a text and itself
    "cosine_similarity": losses.CosineSimilarityLoss,
    "cosent": losses.CoSENTLoss,
}


def in_order(dataset: Any, batch_size: int, **_: Any) -> torch.utils.data.BatchSampler:
    """The examples as they are given."""
    rows = torch.utils.data.SequentialSampler(dataset)
    return torch.utils.data.BatchSampler(rows, batch_size, drop_last=False)


def train(model: sentence_transformers.SentenceTransformer, job: Any) -> list[float]:
    """The loss of each step, before it."""
    loss = LOSSES[job["loss"]](model)
    found: list[float] = []
    loss.register_forward_hook(lambda *of: found.append(float(of[-1].detach())))
    with tempfile.TemporaryDirectory() as folder:
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=job["batch_size"],
            max_steps=job["num_steps"],
            learning_rate=job["learning_rate"],
            warmup_steps=job["num_warmup_steps"],
            lr_scheduler_type="linear",
            optim="adamw_torch",
            adam_epsilon=1e-6,
            weight_decay=0.01,
            max_grad_norm=1.0,
            seed=job["seed"],
            batch_sampler=in_order,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        sentence_transformers.SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=datasets.Dataset.from_dict(job["columns"]),
            loss=loss,
        ).train()
    return found


def correlations(
    model: sentence_transformers.SentenceTransformer, dev: Any
) -> dict[str, float]:
    """Of the cosines with the scores."""
    one, other, scores = dev
    vectors = [model.encode(texts, convert_to_tensor=True) for texts in (one, other)]
    cosines = torch.nn.functional.cosine_similarity(*vectors).tolist()
    return {
        "spearman": float(stats.spearmanr(cosines, scores).statistic),
        "pearson": float(stats.pearsonr(cosines, scores).statistic),
    }


def answer(job: Any) -> Any:
    """What a job asks for."""
    model = sentence_transformers.SentenceTransformer(job["checkpoint"], device="cpu")
    if "encode" in job:
        return model.encode(job["encode"]).tolist()
    torch.set_num_threads(job["threads"])
    transformers.set_seed(job["seed"])
    model.max_seq_length = job["max_seq_length"]
    found: dict[str, Any] = {"losses": train(model, job)}
    if job.get("dev"):
        found |= correlations(model, job["dev"])
    return found


def main() -> None:
    transformers.logging.set_verbosity_error()
    jobs = json.loads(pathlib.Path(sys.argv[1]).read_text())
    print(json.dumps([*map(answer, jobs)]))


if __name__ == "__main__":
    main()
