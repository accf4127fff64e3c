# ruff: noqa: E501 (commands in one line)
"""Language models."""

from __future__ import annotations

from programs.catalogue.program import Program

LANGUAGE = [
    Program(
        "nanogpt_shakespeare",
        "karpathy/nanoGPT",
        ".",
        "train.py -- config/train_shakespeare_char.py --compile=False",
        {"data/shakespeare_char": "tokens"},
    ),
    Program(
        "nanogpt_gpt2_ddp",
        "karpathy/nanoGPT",
        ".",
        "torchrun --nproc_per_node=8 train.py --dataset=made --compile=False",
        {"data/made": "tokens"},
    ),
    Program("mingpt_adder", "karpathy/minGPT", "projects/adder", "adder.py", paths=(".",)),
    Program(
        "mingpt_chargpt", "karpathy/minGPT", "projects/chargpt", "chargpt.py", {".": "text"}, (".",)
    ),
    Program("makemore", "karpathy/makemore", ".", "makemore.py -- --device cuda -n 0 --n-embd 256"),
    Program(
        "llm_c_gpt2",
        "karpathy/llm.c",
        ".",
        "train_gpt2.py -- --input_bin made/train.bin --input_val_bin made/val.bin --model d12"
        " --sequence_length 1024 --total_batch_size 4096 --dtype bfloat16 --write_tensors 0 --flash 1",
        {"made": "token_shards"},
    ),
    Program(
        "x_transformers_enwik8",
        "lucidrains/x-transformers",
        ".",
        "train_enwik8.py",
        {"data": "enwik8"},
    ),
    Program("x_transformers_copy", "lucidrains/x-transformers", ".", "train_copy.py"),
    Program(
        "nanochat_base",
        "karpathy/nanochat",
        ".",
        "--eager -m scripts.base_train -- --depth=12 --device-batch-size=8 --num-iterations=20"
        " --eval-tokens=65536 --core-metric-every=-1",
        {"made": "nanochat"},
        environment={"NANOCHAT_BASE_DIR": "made"},
    ),
    Program(
        "torchtitan_debug",
        "pytorch/torchtitan",
        ".",
        "torchrun --nproc_per_node=8 -m torchtitan.train"
        " --job.config_file torchtitan/models/llama3/train_configs/debug_model.toml",
        {"tests/assets/c4_test": "c4"},
    ),
    Program(
        "nanogpt_compiled",
        "karpathy/nanoGPT",
        ".",
        "train.py -- config/train_shakespeare_char.py",
        {"data/shakespeare_char": "tokens"},
    ),
    Program(
        "nanochat_compiled",
        "karpathy/nanochat",
        ".",
        "-m scripts.base_train -- --depth=4 --device-batch-size=8 --num-iterations=20"
        " --eval-tokens=65536 --core-metric-every=-1",
        {"made": "nanochat"},
        environment={"NANOCHAT_BASE_DIR": "made"},
    ),
    Program(
        "torchtitan_compiled",
        "pytorch/torchtitan",
        ".",
        "torchrun --nproc_per_node=8 -m torchtitan.train"
        " --job.config_file torchtitan/models/llama3/train_configs/debug_model.toml"
        " --compile.enable",
        {"tests/assets/c4_test": "c4"},
    ),
    Program(
        "llm_c_compiled",
        "karpathy/llm.c",
        ".",
        "train_gpt2.py -- --input_bin made/train.bin --input_val_bin made/val.bin --model d12"
        " --sequence_length 1024 --total_batch_size 4096 --dtype bfloat16 --write_tensors 0 --flash 1"
        " --compile 1",
        {"made": "token_shards"},
    ),
    Program("video_lecture_gpt", "karpathy/ng-video-lecture", ".", "gpt.py"),
    Program(
        "transformer_xl_enwik8",
        "kimiyoung/transformer-xl",
        "pytorch",
        "train.py -- --cuda --data ../data/enwik8/ --dataset enwik8 --n_layer 12 --d_model 512 --n_head 8"
        " --d_head 64 --d_inner 2048 --optim adam --lr 0.00025 --max_step 400000 --tgt_len 512"
        " --mem_len 512 --eval_tgt_len 128 --batch_size 22",
        {"../data/enwik8": "wikitext"},
    ),
    Program(
        "modded_nanogpt",
        "KellerJordan/modded-nanogpt",
        ".",
        "torchrun --nproc_per_node=8 train_gpt.py",
    ),
    Program(
        "palm_enwik8",
        "lucidrains/PaLM-rlhf-pytorch",
        ".",
        "train.py",
        {"data": "enwik8"},
        (".",),
    ),
    Program(
        "open_lm_160m",
        "mlfoundations/open_lm",
        ".",
        "-m open_lm.main -- --dataset-type synthetic --model open_lm_160m --train-num-samples 819200 --global-batch-size 8 --epochs 1 --workers 0 --precision amp_bfloat16 --ffn-type swiglu_torch --attn-name torch_attn",
    ),
    Program(
        "llama2_c_compiled",
        "karpathy/llama2.c",
        ".",
        "train.py -- --vocab_source=custom --vocab_size=4096 --batch_size=32",
        {"data/tok4096": "token_files"},
    ),
    Program(
        "lora_gpt2",
        "microsoft/LoRA",
        "examples/NLG",
        "torchrun --nproc_per_node=1 src/gpt2_ft.py --train_data made/train.jsonl --valid_data"
        " made/valid.jsonl --train_batch_size 8 --grad_acc 1 --valid_batch_size 4 --seq_len 512"
        " --model_card gpt2.md --init_checkpoint made/gpt2-medium.bin --platform local --clip 0.0"
        " --lr 0.0002 --weight_decay 0.01 --correct_bias --adam_beta2 0.999 --scheduler linear"
        " --warmup_step 500 --max_epoch 2 --save_interval 1000 --lora_dim 4 --lora_alpha 32"
        " --lora_dropout 0.1 --label_smooth 0.1 --work_dir out --random_seed 110",
        {"made": "lora_texts"},
        ("loralib", "."),
    ),
    Program(
        "litgpt_pretrain",
        "Lightning-AI/litgpt",
        ".",
        "-m litgpt -- pretrain pythia-14m --tokenizer_dir made --data TextFiles --data.train_data_path"
        " made --data.num_workers 1 --train.max_tokens 200000 --train.micro_batch_size 4"
        " --train.global_batch_size 8 --out_dir out",
        {"made": "texts"},
    ),
]
