# ruff: noqa: E501 (commands in one line)
"""Series, equations and experts."""

from __future__ import annotations

from programs.catalogue.program import Program, mnist

_ODE = "rtqichen/torchdiffeq"
_EXPERTS = "davidmrau/mixture-of-experts"
_SERIES = "thuml/Time-Series-Library"

SERIES = [
    Program("tcn_copy_memory", "locuslab/TCN", "TCN/copy_memory", "copymem_test.py", paths=(".",)),
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
    Program("mixture_of_experts", _EXPERTS, ".", "example.py"),
    Program("mixture_of_experts_cifar", _EXPERTS, ".", "cifar10_example.py", {"data": "cifar10"}),
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
    Program("forecasting_nbeats", "sktime/pytorch-forecasting", "examples", "nbeats.py"),
    Program("pyro_cvae", "pyro-ppl/pyro", "examples/cvae", "main.py -- --cuda -n 1", mnist()),
    Program("pyro_svi", "pyro-ppl/pyro", "examples", "svi_torch.py -- --cuda"),
    Program("pyro_epidemic_hmc", "pyro-ppl/pyro", "examples", "sir_hmc.py -- --cuda -n 4 -w 4"),
    Program("pyro_cevae", "pyro-ppl/pyro", "examples/contrib/cevae", "synthetic.py -- --cuda"),
]
