# ruff: noqa: E501 (commands in one line)
"""What makes pictures: adversaries, diffusion, fields."""

from __future__ import annotations

from programs.catalogue.program import Program, mnist

_GAN = "eriklindernoren/PyTorch-GAN"

GENERATORS = [
    Program("gan", _GAN, "implementations/gan", "gan.py", mnist("../../data/mnist")),
    Program("wgan_gp", _GAN, "implementations/wgan_gp", "wgan_gp.py", mnist("../../data/mnist")),
    Program("acgan", _GAN, "implementations/acgan", "acgan.py", mnist("../../data/mnist")),
    Program("infogan", _GAN, "implementations/infogan", "infogan.py", mnist("../../data/mnist")),
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
    Program(
        "dit_xl",
        "facebookresearch/DiT",
        ".",
        "torchrun --nproc_per_node=8 train.py --data-path made --num-workers 0 --global-batch-size 64",
        {"made": "images", "stabilityai/sd-vae-ft-ema": "vae"},
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
        "nerf",
        "yenchenlin/nerf-pytorch",
        ".",
        "run_nerf.py -- --config configs/lego.txt",
        {"data/nerf_synthetic/lego": "blender"},
    ),
    Program(
        "siren_wave_equation",
        "vsitzmann/siren",
        ".",
        "experiment_scripts/train_wave_equation.py -- --experiment_name made",
    ),
    Program(
        "vq_vae_2",
        "rosinality/vq-vae-2-pytorch",
        ".",
        "train_vqvae.py -- made",
        {"made": "images"},
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
        "stargan",
        "yunjey/stargan",
        ".",
        "main.py -- --mode train --num_workers 0 --use_tensorboard False",
        {"data/celeba": "celeba"},
    ),
    Program("singan", "tamarott/SinGAN", ".", "main_train.py -- --input_name balloons.png"),
    Program(
        "stylegan2",
        "rosinality/stylegan2-pytorch",
        ".",
        "train.py -- --batch 8 --size 256 made",
        {"made": "flat_images"},
    ),
]
