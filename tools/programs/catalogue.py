# ruff: noqa: E501 (commands in one line)
"""Which programs, with which data and which command."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    name: str
    repo: str
    folder: str  # of the repository, in which it is started
    command: str  # after `peakline estimate`; peakline's own flags come first
    data: dict[str, str] = field(default_factory=dict)  # by place, relative to the folder
    paths: tuple[str, ...] = ()  # of the repository, to import from
    environment: dict[str, str] = field(default_factory=dict)


def _mnist(place: str = "../data") -> dict[str, str]:
    return {place: "mnist"}


_EXAMPLES = "pytorch/examples"
_GAN = "eriklindernoren/PyTorch-GAN"
_RL = "vwxyzjn/cleanrl"
_LIGHTNING = "Lightning-AI/pytorch-lightning"
_TUTORIAL = "yunjey/pytorch-tutorial"
_ODE = "rtqichen/torchdiffeq"
_EXPERTS = "davidmrau/mixture-of-experts"
_GRAPHS = "pyg-team/pytorch_geometric"
_DISTILLATION = "HobbitLong/RepDistiller"
_SERIES = "thuml/Time-Series-Library"

# For tensorboard_logger, whose messages were made for an older protobuf.
_OLD_MESSAGES = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}

PROGRAMS = [
    Program("mnist", _EXAMPLES, "mnist", "main.py", _mnist()),
    Program("mnist_rnn", _EXAMPLES, "mnist_rnn", "main.py -- --accel", _mnist()),
    Program("mnist_forward_forward", _EXAMPLES, "mnist_forward_forward", "main.py", _mnist("data")),
    Program("siamese_network", _EXAMPLES, "siamese_network", "main.py", _mnist()),
    Program("vae", _EXAMPLES, "vae", "main.py", _mnist()),
    Program(
        "imagenet_resnet50", _EXAMPLES, "imagenet", "main.py -- --dummy -a resnet50 -b 64 -j 0"
    ),
    Program(
        "imagenet_ddp",
        _EXAMPLES,
        "imagenet",
        "--world-size 4 main.py -- --dummy -a resnet18 -b 32 -j 0 --multiprocessing-distributed"
        " --dist-url tcp://127.0.0.1:29510 --world-size 1 --rank 0",
    ),
    Program("dcgan", _EXAMPLES, "dcgan", "main.py -- --dataset fake --accel --workers 0"),
    Program(
        "word_language_model_lstm",
        _EXAMPLES,
        "word_language_model",
        "main.py -- --accel --data made",
        {"made": "wikitext"},
    ),
    Program(
        "word_language_model_transformer",
        _EXAMPLES,
        "word_language_model",
        "main.py -- --accel --model Transformer --data made",
        {"made": "wikitext"},
    ),
    Program(
        "super_resolution",
        _EXAMPLES,
        "super_resolution",
        "main.py -- --upscale_factor 3 --accel --nEpochs 2 --threads 0",
        {"dataset": "bsds300"},
    ),
    Program(
        "fast_neural_style",
        _EXAMPLES,
        "fast_neural_style",
        "neural_style/neural_style.py -- train --dataset made --save-model-dir . --accel",
        {"made": "images"},
    ),
    Program("gat", _EXAMPLES, "gat", "main.py", {"cora": "cora"}),
    Program("ddp", _EXAMPLES, "distributed/ddp", "torchrun --nproc_per_node=4 example.py"),
    Program(
        "ddp_tutorial",
        _EXAMPLES,
        "distributed/ddp-tutorial-series",
        "torchrun --nproc_per_node=4 multigpu_torchrun.py 3 1",
    ),
    Program("fsdp2", _EXAMPLES, "distributed/FSDP2", "torchrun --nproc_per_node=4 example.py"),
    Program(
        "tensor_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 tensor_parallel_example.py",
    ),
    Program(
        "sequence_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 sequence_parallel_example.py",
    ),
    Program(
        "fsdp_with_tensor_parallel",
        _EXAMPLES,
        "distributed/tensor_parallelism",
        "torchrun --nproc_per_node=4 fsdp_tp_example.py",
    ),
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
    Program("pytorch_cifar", "kuangliu/pytorch-cifar", ".", "main.py", {"data": "cifar10"}),
    Program(
        "pytorch_cifar100",
        "weiaicunzai/pytorch-cifar100",
        ".",
        "train.py -- -net resnet50 -gpu",
        {"data": "cifar100"},
    ),
    Program("unet", "milesial/Pytorch-UNet", ".", "train.py -- --amp -b 2 -e 1", {"data": "masks"}),
    Program("gan", _GAN, "implementations/gan", "gan.py", _mnist("../../data/mnist")),
    Program("wgan_gp", _GAN, "implementations/wgan_gp", "wgan_gp.py", _mnist("../../data/mnist")),
    Program("acgan", _GAN, "implementations/acgan", "acgan.py", _mnist("../../data/mnist")),
    Program("infogan", _GAN, "implementations/infogan", "infogan.py", _mnist("../../data/mnist")),
    Program(
        "cyclegan",
        _GAN,
        "implementations/cyclegan",
        "cyclegan.py -- --dataset_name made --n_cpu 0",
        {"../../data/made": "two_domains", "data/made": "two_domains"},
    ),
    Program(
        "pix2pix",
        _GAN,
        "implementations/pix2pix",
        "pix2pix.py -- --dataset_name made --n_cpu 0 --batch_size 4",
        {"../../data/made": "pairs"},
    ),
    Program(
        "srgan",
        _GAN,
        "implementations/srgan",
        "srgan.py -- --dataset_name made --n_cpu 0",
        {"../../data/made": "flat_images"},
    ),
    Program("cleanrl_ppo", _RL, ".", "cleanrl/ppo.py"),
    Program("cleanrl_dqn", _RL, ".", "cleanrl/dqn.py -- --learning-starts 200", paths=(".",)),
    Program("cleanrl_c51", _RL, ".", "cleanrl/c51.py -- --learning-starts 200", paths=(".",)),
    Program("cleanrl_pqn", _RL, ".", "cleanrl/pqn.py"),
    Program(
        "vit_decorrelated",
        "lucidrains/vit-pytorch",
        ".",
        "train_vit_decorr.py",
        {"data": "cifar100"},
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
        "dit_xl",
        "facebookresearch/DiT",
        ".",
        "torchrun --nproc_per_node=8 train.py --data-path made --num-workers 0 --global-batch-size 64",
        {"made": "images", "stabilityai/sd-vae-ft-ema": "vae"},
    ),
    Program(
        "dino_vit_small",
        "facebookresearch/dino",
        ".",
        "torchrun --nproc_per_node=8 main_dino.py --data_path made --num_workers 0"
        " --batch_size_per_gpu 8",
        {"made": "images", "made_hub/hub/facebookresearch_xcit_main": "hub"},
        environment={"TORCH_HOME": "made_hub"},
    ),
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
        "diffusers_unconditional",
        "huggingface/diffusers",
        "examples/unconditional_image_generation",
        "train_unconditional.py -- --train_data_dir made --resolution 64 --train_batch_size 16"
        " --num_epochs 1 --dataloader_num_workers 0 --output_dir out",
        {"made": "flat_images"},
    ),
    Program(
        "pyg_gcn",
        "pyg-team/pytorch_geometric",
        "examples",
        "gcn.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_gat",
        "pyg-team/pytorch_geometric",
        "examples",
        "gat.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
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
        "timm_train",
        "huggingface/pytorch-image-models",
        ".",
        "train.py -- made --model vit_small_patch16_224 -b 32 --num-classes 8 --workers 1 --amp"
        " --opt adamw --epochs 2",
        {"made": "image_sets"},
    ),
    Program(
        "torchvision_classification",
        "pytorch/vision",
        "references/classification",
        "train.py -- --data-path made --model resnet50 --batch-size 16 --workers 0 --epochs 2 --amp",
        {"made": "image_sets"},
    ),
    Program(
        "torchvision_mask_rcnn",
        "pytorch/vision",
        "references/detection",
        "train.py -- --dataset coco --data-path made --model maskrcnn_resnet50_fpn --epochs 2"
        " --workers 0 --weights-backbone ResNet50_Weights.IMAGENET1K_V1",
        {"made": "coco"},
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
    Program(
        "timm_compiled",
        "huggingface/pytorch-image-models",
        ".",
        "train.py -- made --model vit_small_patch16_224 -b 32 --num-classes 8 --workers 1 --amp"
        " --opt adamw --epochs 2 --torchcompile",
        {"made": "image_sets"},
    ),
    Program(
        "tutorial_resnet",
        _TUTORIAL,
        "tutorials/02-intermediate/deep_residual_network",
        "main.py",
        {"../../data": "cifar10"},
    ),
    Program(
        "tutorial_bidirectional_lstm",
        _TUTORIAL,
        "tutorials/02-intermediate/bidirectional_recurrent_neural_network",
        "main.py",
        _mnist("../../data"),
    ),
    Program(
        "deepspeed_cifar_zero2",
        "deepspeedai/DeepSpeedExamples",
        "training/cifar",
        "--world-size 2 cifar10_deepspeed.py -- --deepspeed --stage 2",
        {"data": "cifar10"},
    ),
    Program("pygcn", "tkipf/pygcn", "pygcn", "train.py", {"../data/cora": "cora"}, (".",)),
    Program("tcn_copy_memory", "locuslab/TCN", "TCN/copy_memory", "copymem_test.py", paths=(".",)),
    Program("video_lecture_gpt", "karpathy/ng-video-lecture", ".", "gpt.py"),
    Program(
        "resnet_cifar10",
        "akamaster/pytorch_resnet_cifar10",
        ".",
        "trainer.py -- --arch=resnet20 --save-dir=save_resnet20",
        {"data": "cifar10"},
    ),
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
        "sam_wide_resnet",
        "davda54/sam",
        "example",
        "train.py -- --threads 0",
        {"data": "cifar10", "cifar": "cifar10"},
    ),
    Program(
        "fast_adversarial_mnist",
        "locuslab/fast_adversarial",
        "MNIST",
        "train_mnist.py",
        {"../mnist-data": "mnist"},
    ),
    Program("neural_ode", _ODE, "examples", "odenet_mnist.py", {".data/mnist": "mnist"}, (".",)),
    Program(
        "neural_ode_adjoint",
        _ODE,
        "examples",
        "odenet_mnist.py -- --adjoint True",
        {".data/mnist": "mnist"},
        (".",),
    ),
    Program(
        "continuous_normalizing_flow",
        _ODE,
        "examples",
        "--values float=1e-6 cnf.py -- --adjoint",
        {},
        (".",),
    ),
    Program(
        "schedule_free_mnist",
        "facebookresearch/schedule_free",
        "examples/mnist",
        "main.py",
        {"../data": "mnist"},
    ),
    Program(
        "dlrm",
        "facebookresearch/dlrm",
        ".",
        "dlrm_s_pytorch.py -- --use-gpu --mini-batch-size=2048 --arch-embedding-size=100000-200000-1000000 --arch-sparse-feature-size=64 --arch-mlp-bot=13-512-256-64 --arch-mlp-top=512-256-1 --data-generation=random --num-batches=20",
    ),
    Program(
        "nerf",
        "yenchenlin/nerf-pytorch",
        ".",
        "run_nerf.py -- --config configs/lego.txt",
        {"data/nerf_synthetic/lego": "blender"},
    ),
    Program(
        "simclr",
        "sthalles/SimCLR",
        ".",
        "run.py -- -dataset-name cifar10 -j 0 --fp16-precision",
        {"datasets": "cifar10"},
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
        "siren_wave_equation",
        "vsitzmann/siren",
        ".",
        "experiment_scripts/train_wave_equation.py -- --experiment_name made",
    ),
    Program("mixture_of_experts", _EXPERTS, ".", "example.py"),
    Program("mixture_of_experts_cifar", _EXPERTS, ".", "cifar10_example.py", {"data": "cifar10"}),
    Program(
        "open_clip_rn50",
        "mlfoundations/open_clip",
        "src",
        "-m open_clip_train.main -- --dataset-type synthetic --train-num-samples 512 --batch-size 64 --model RN50 --workers 0 --epochs 1 --precision amp",
    ),
    Program(
        "open_lm_160m",
        "mlfoundations/open_lm",
        ".",
        "-m open_lm.main -- --dataset-type synthetic --model open_lm_160m --train-num-samples 819200 --global-batch-size 8 --epochs 1 --workers 0 --precision amp_bfloat16 --ffn-type swiglu_torch --attn-name torch_attn",
    ),
    Program(
        "mingpt_ddp",
        _EXAMPLES,
        "distributed/minGPT-ddp/mingpt",
        "torchrun --standalone --nproc_per_node=4 main.py data_config.path=data/input.txt trainer_config.data_loader_workers=0",
    ),
    Program(
        "llama2_c_compiled",
        "karpathy/llama2.c",
        ".",
        "train.py -- --vocab_source=custom --vocab_size=4096 --batch_size=32",
        {"data/tok4096": "token_files"},
    ),
    Program(
        "pyg_gcn2", _GRAPHS, "examples", "gcn2_cora.py", {"../data/Cora/Cora/raw": "planetoid"}
    ),
    Program(
        "pyg_infomax",
        _GRAPHS,
        "examples",
        "infomax_transductive.py",
        {"../data/Cora/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_link_prediction",
        _GRAPHS,
        "examples",
        "link_pred.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program(
        "pyg_autoencoder",
        _GRAPHS,
        "examples",
        "autoencoder.py",
        {"../data/Planetoid/Cora/raw": "planetoid"},
    ),
    Program("pyg_tagcn", _GRAPHS, "examples", "tagcn.py", {"../data/Cora/Cora/raw": "planetoid"}),
    Program("pygat", "Diego999/pyGAT", ".", "train.py", {"data/cora": "cora"}),
    Program(
        "pygat_sparse",
        "Diego999/pyGAT",
        ".",
        "--values nonzero=0.002 train.py -- --sparse",  # the share of pairs that are edges
        {"data/cora": "cora"},
    ),
    Program(
        "barlow_twins",
        "facebookresearch/barlowtwins",
        ".",
        "--devices 2 main.py -- made --batch-size 64 --workers 0 --checkpoint-dir out",
        {"made/train": "images"},
    ),
    Program(
        "vq_vae_2",
        "rosinality/vq-vae-2-pytorch",
        ".",
        "train_vqvae.py -- made",
        {"made": "images"},
    ),
    Program(
        "rl_zoo_ppo",
        "DLR-RM/rl-baselines3-zoo",
        ".",
        "-m rl_zoo3.train -- --algo ppo --env CartPole-v1 --device cuda --n-eval-envs 1 --log-folder out",
    ),
    Program("lightgcn", "gusye1234/LightGCN-PyTorch", "code", "main.py -- --dataset lastfm"),
    Program(
        "distillation_teacher",
        _DISTILLATION,
        ".",
        "train_teacher.py -- --model resnet32x4 --num_workers 0",
        {"data": "cifar100"},
        environment=_OLD_MESSAGES,
    ),
    Program(
        "distillation_student",
        _DISTILLATION,
        ".",
        "train_student.py -- --path_t save/models/resnet32x4_vanilla/ckpt_epoch_240.pth"
        " --distill similarity --model_s resnet8x4 -r 1 -a 1 -b 3000 --num_workers 0",
        {"data": "cifar100", "save/models/resnet32x4_vanilla": "teacher"},
        environment=_OLD_MESSAGES,
    ),
    Program(
        "series_patchtst",
        _SERIES,
        ".",
        "run.py -- --task_name long_term_forecast --is_training 1 --root_path made --data_path ETTh1.csv"
        " --model_id ETTh1_96_96 --model PatchTST --data ETTh1 --features M --seq_len 96 --label_len 48"
        " --pred_len 96 --e_layers 1 --d_layers 1 --factor 3 --enc_in 7 --dec_in 7 --c_out 7 --n_heads 2"
        " --itr 1 --num_workers 0",
        {"made": "hours"},
    ),
    Program(
        "series_timesnet",
        _SERIES,
        ".",
        "run.py -- --task_name long_term_forecast --is_training 1 --root_path made --data_path ETTh1.csv"
        " --model_id ETTh1_96_96 --model TimesNet --data ETTh1 --features M --seq_len 96 --label_len 48"
        " --pred_len 96 --e_layers 2 --d_layers 1 --factor 3 --enc_in 7 --dec_in 7 --c_out 7 --d_model 16"
        " --d_ff 32 --itr 1 --top_k 5 --num_workers 0",
        {"made": "hours"},
    ),
    Program(
        "pointnet2",
        "yanx27/Pointnet_Pointnet2_pytorch",
        ".",
        "train_classification.py -- --model pointnet2_cls_ssg --log_dir made",
        {"data/modelnet40_normal_resampled": "modelnet"},
    ),
    Program(
        "ddpm_cifar10",
        "tqch/ddpm-torch",
        ".",
        "train.py -- --dataset cifar10 --root data --train-device cuda:0 --eval-device cuda:0"
        " --epochs 2 --num-workers 0",
        {"data": "cifar10"},
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
        "fixmatch",
        "kekmodel/FixMatch-pytorch",
        ".",
        "train.py -- --dataset cifar10 --num-labeled 40 --arch wideresnet --batch-size 64 --lr 0.03"
        " --expand-labels --num-workers 0 --out out",
        {"data": "cifar10"},
    ),
    Program(
        "stargan",
        "yunjey/stargan",
        ".",
        "main.py -- --mode train --num_workers 0 --use_tensorboard False",
        {"data/celeba": "celeba"},
    ),
    Program(
        "simsiam",
        "facebookresearch/simsiam",
        ".",
        "--devices 2 main_simsiam.py -- -a resnet50 --fix-pred-lr --multiprocessing-distributed"
        " --dist-url tcp://127.0.0.1:29511 --world-size 1 --rank 0 -b 32 -j 0 made",
        {"made/train": "images"},
    ),
    Program("singan", "tamarott/SinGAN", ".", "main_train.py -- --input_name balloons.png"),
    Program(
        "yolov5s",
        "ultralytics/yolov5",
        ".",
        "train.py -- --data made/made.yaml --weights '' --cfg models/yolov5s.yaml --img 640"
        " --batch-size 16 --epochs 2 --workers 0 --noplots",
        {"made": "boxes", "yolov5n.pt": "yolo_weights"},
        environment={"YOLOV5_CONFIG_DIR": "made"},
    ),
    Program(
        "stylegan2",
        "rosinality/stylegan2-pytorch",
        ".",
        "train.py -- --batch 8 --size 256 made",
        {"made": "flat_images"},
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
