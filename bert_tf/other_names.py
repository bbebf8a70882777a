"""What flags of other packages are called here, for a command line that has them."""

import re

from absl import flags

# A name with dashes between its words is looked up with underscores. Where commands
# call it differently, each name is there, and the one that the command has is meant.
_OURS = {
    "adam_beta1": "Adam's is 0.9, as in the paper",
    "adam_beta2": "Adam's is 0.999, as in the paper",
    "batch_size": "--train_batch_size",
    "bf16": "--precision=bfloat16",
    "bsz": "--train_batch_size",
    "cased": "--do_lower_case=False",
    "config_name": "--bert_config_file",
    "dataset_config_name": "--tfds_name",
    "dataset_name": "--tfds_name",
    "dtype": "--precision",
    "dev_file": "--predict_file",
    "enable_xla": "--jit_compile",
    "end_lr": "--end_learning_rate",
    "epochs": "--num_train_epochs or --num_train_steps",
    "eval_data_path": "--dev_file or --data_dir",
    "evaluation_file": "--dev_file or --predict_file",
    "fp16": "--precision=float16",
    "gradient_checkpointing": "--recompute",
    "input_files": "--input_file",
    "label_column_name": "--label_column",
    "logging_steps": "--log_steps",
    "lr": "--learning_rate",
    "lr_scheduler_type": "--learning_rate_schedule",
    "max_length": "--max_seq_length",
    "max_steps": "--num_train_steps or --num_train_epochs",
    "metric_for_best_model": "--best_metric",
    "mlm_probability": "--masked_lm_prob",
    "model_dir": "--output_dir",
    "model_name_or_path": "--init_checkpoint or --checkpoint",
    "num_epochs": "--num_train_epochs or --num_train_steps",
    "num_train_epochs": "--num_train_steps",
    "num_train_steps": "--num_train_epochs",
    "num_warmup_steps": "--warmup_proportion",
    "optim": "--optimizer",
    "optimizer_type": "--optimizer",
    "output_path": "--output_dir or --output_file",
    "pad_to_max_length": "--pad=max",
    "per_device_eval_batch_size": "--eval_batch_size, that of all devices together",
    "per_device_train_batch_size": "--train_batch_size, that of all devices together",
    "per_gpu_train_batch_size": "--train_batch_size, that of all devices together",
    "preprocessing_num_workers": "--num_workers",
    "resume_from_checkpoint": "the same command given again resumes",
    "save_steps": "--save_checkpoints_steps",
    "save_total_limit": "--keep_checkpoint_max",
    "seed": "--random_seed",
    "steps_per_loop": "--iterations_per_loop",
    "text_column_name": "--word_column or --text_a_column",
    "tokenizer_name": "--vocab_file",
    "torch_compile": "--jit_compile",
    "tpu": "--tpu_name",
    "train_data_path": "--train_file or --data_dir",
    "use_next_sentence_label": "--next_sentence",
    "validation_file": "--dev_file or --predict_file or --eval_input_file",
    "warmup_ratio": "--warmup_proportion or --num_warmup_steps",
    "warmup_steps": "--num_warmup_steps or --warmup_proportion",
    "weight_decay": "it is always 0.01, as in the paper",
}


def meaning(name: str, flag_values: flags.FlagValues) -> str:
    """What an unknown flag is called by this command; "" where that is unknown."""
    name = name.replace("-", "_")
    if name in flag_values:
        return f"--{name}"
    for ours in _OURS.get(name, "").split(" or "):
        flag = re.match("--([a-z_]+)", ours)
        if ours and (flag is None or flag[1] in flag_values):
            return ours
    return ""
