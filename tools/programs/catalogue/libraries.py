# ruff: noqa: E501 (commands in one line)
"""Programs of libraries that train."""

from __future__ import annotations

from programs.catalogue.program import Program

_LIGHTNING = "Lightning-AI/pytorch-lightning"

LIBRARIES = [
    Program(
        "lightning_autoencoder",
        _LIGHTNING,
        "examples/pytorch/basics",
        "autoencoder.py -- --data.batch_size 32 --trainer.max_epochs 2",
        {"../../Datasets": "mnist_whole", "data": "mnist_whole"},
    ),
    Program(
        "lightning_transformer",
        _LIGHTNING,
        "examples/pytorch/basics",
        "transformer.py",
        {"data": "wikitext_demo"},
    ),
    Program(
        "fabric_image_classifier",
        _LIGHTNING,
        "examples/fabric/image_classifier",
        "train_fabric.py",
        {"../../../Datasets": "mnist", "data": "mnist"},
    ),
    Program(
        "fabric_language_model",
        _LIGHTNING,
        "examples/fabric/language_model",
        "train.py",
        {"data": "wikitext_demo"},
    ),
    Program(
        "fabric_tensor_parallel",
        _LIGHTNING,
        "examples/fabric/tensor_parallel",
        "torchrun --nproc_per_node=4 train.py",
    ),
    Program(
        "transformers_run_clm",
        "huggingface/transformers",
        "examples/pytorch/language-modeling",
        "run_clm.py -- --config_name made/gpt2 --tokenizer_name made/gpt2 --train_file made/input.txt"
        " --validation_file made/input.txt --do_train --do_eval --bf16 --block_size 512"
        " --per_device_train_batch_size 8 --output_dir out --report_to none",
        {"made": "gpt2_settings"},
    ),
    Program(
        "transformers_run_mlm",
        "huggingface/transformers",
        "examples/pytorch/language-modeling",
        "run_mlm.py -- --config_name made/bert --tokenizer_name made/bert --train_file made/input.txt"
        " --validation_file made/input.txt --do_train --do_eval --max_seq_length 256"
        " --per_device_train_batch_size 16 --output_dir out --report_to none",
        {"made": "gpt2_settings"},
    ),
    Program(
        "trl_sft",
        "huggingface/trl",
        "trl/scripts",
        "sft.py -- --model_name_or_path made/model --dataset_name made --output_dir out --bf16 true"
        " --per_device_train_batch_size 4 --max_length 512 --report_to none",
        {"made": "chat"},
    ),
    Program(
        "peft_olora",
        "huggingface/peft",
        "examples/olora_finetuning",
        "olora_finetuning.py -- --base_model made/model --data_path made/instructions --dtype bfloat16",
        {"made": "instructions"},
    ),
    Program(
        "accelerate_nlp",
        "huggingface/accelerate",
        "examples",
        "nlp_example.py -- --mixed_precision bf16",
        {".": "glue"},
    ),
    Program(
        "accelerate_memory",
        "huggingface/accelerate",
        "examples/by_feature",
        "memory.py",
        {".": "glue"},
    ),
    Program(
        "accelerate_cv",
        "huggingface/accelerate",
        "examples",
        "accelerate launch --num_processes 4 cv_example.py --data_dir made --mixed_precision bf16",
        {"made": "pets"},
    ),
    Program(
        "deepspeed_cifar_zero2",
        "deepspeedai/DeepSpeedExamples",
        "training/cifar",
        "--world-size 2 cifar10_deepspeed.py -- --deepspeed --stage 2",
        {"data": "cifar10"},
    ),
    Program(
        "trl_dpo",
        "huggingface/trl",
        "trl/scripts",
        "dpo.py -- --model_name_or_path made/model --dataset_name preferences --output_dir out --bf16 true"
        " --per_device_train_batch_size 4 --max_length 512 --report_to none",
        {"made": "chat", "preferences": "preferences"},
    ),
    Program(
        "trl_grpo",
        "huggingface/trl",
        "trl/scripts",
        "grpo.py -- --model_name_or_path made/model --dataset_name prompts --output_dir out --bf16 true"
        " --reward_funcs think_format_reward --per_device_train_batch_size 4 --num_generations 4"
        " --max_completion_length 64 --report_to none",
        {"made": "chat", "prompts": "prompts"},
    ),
    Program(
        "cross_encoder_sts",
        "UKPLab/sentence-transformers",
        "examples/cross_encoder/training/sts",
        "training_stsbenchmark.py",
        {"distilroberta-base": "distilroberta", "sentence-transformers/stsb": "sentence_pairs"},
    ),
    Program(
        "trl_reward",
        "huggingface/trl",
        "trl/scripts",
        "reward.py -- --model_name_or_path made/model --dataset_name preferences --output_dir out --bf16 true"
        " --per_device_train_batch_size 4 --max_length 512 --report_to none",
        {"made": "chat", "preferences": "preferences"},
    ),
    Program(
        "trl_rloo",
        "huggingface/trl",
        "trl/scripts",
        "rloo.py -- --model_name_or_path made/model --dataset_name prompts --output_dir out --bf16 true"
        " --reward_funcs think_format_reward --per_device_train_batch_size 4 --num_generations 4 --max_completion_length 64 --report_to none",
        {"made": "chat", "prompts": "prompts"},
    ),
]
