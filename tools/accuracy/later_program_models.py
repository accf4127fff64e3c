# mypy: disable-error-code="misc,call-arg,no-untyped-call,attr-defined,operator,arg-type,call-overload,union-attr,no-any-return"
# ruff: noqa: E501 (layers side by side)
"""A second dozen of people's programs: what `program_models` has kinds of, written anew.

Predicted without a GPU, and the predictions committed, before any of them was measured.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributions, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from accuracy.later_program_parts import (
    Dense,
    Lion,
    LowRank,
    PackedBlock,
    Sentences,
    Translating,
    padded,
)
from accuracy.models import Step, hugging_face

MODELS: dict[str, Callable[[str], Step]] = {}


def program(build: Callable[[str], Step]) -> Callable[[str], Step]:
    MODELS[build.__name__] = build
    return build


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, rate: float) -> None:
    """An exponential moving average, buffers copied."""
    for old, new in zip(slow.parameters(), fast.parameters(), strict=True):
        old.mul_(1 - rate).add_(new, alpha=rate)
    for was, now in zip(slow.buffers(), fast.buffers(), strict=True):
        was.copy_(now)


@program
def speech_to_text_accumulated(device: str) -> Step:
    """Sound to spectra on the device, an encoder and a decoder, three parts of different lengths."""
    import transformers

    config = transformers.Speech2TextConfig(
        vocab_size=8000, d_model=384, encoder_layers=8, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6,
        encoder_ffn_dim=1536, decoder_ffn_dim=1536, encoder_layerdrop=0.0, decoder_layerdrop=0.0, use_cache=True,
        conv_channels=768, max_source_positions=3000, max_target_positions=256,
    )  # fmt: skip
    net = hugging_face("Speech2TextForConditionalGeneration", config).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4, betas=(0.9, 0.98))
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 100, 1000)
    window, filters = torch.hann_window(400, device=device), torch.rand(80, 201, device=device)

    def features(sound: Tensor) -> Tensor:
        spectrum = torch.stft(sound, 400, 160, window=window, return_complex=True)
        bands = (filters @ (spectrum[..., :-1].abs() ** 2)).clamp(min=1e-10).log10()
        bands = torch.maximum(bands, bands.amax((1, 2), keepdim=True) - 8.0)
        return ((bands + 4.0) / 4.0).transpose(1, 2)

    def step() -> None:
        net.train()
        for seconds, said in ((12, 60), (15, 84), (9, 47)):
            sound = torch.randn(12, seconds * 16000).to(device, non_blocking=True)
            labels = torch.randint(3, 8000, (12, said))
            labels[::3, said - 10 :] = -100
            heard = features(sound)
            mask = torch.ones(heard.shape[:2], dtype=torch.long, device=device)
            with torch.autocast("cuda", torch.bfloat16):
                loss = net(input_features=heard, attention_mask=mask, labels=labels.to(device)).loss
            (loss / 3).backward()
        if not torch.isfinite(nn.utils.clip_grad_norm_(net.parameters(), 2.0)):
            return
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            net.generate(heard[:8], attention_mask=mask[:8], max_new_tokens=24, num_beams=1)

    return step


@program
def sew_ctc_checkpointed(device: str) -> Step:
    """A squeezed speech encoder into CTC, padded sounds, recomputed layers."""
    import transformers

    config = transformers.SEWConfig(
        vocab_size=48, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, layerdrop=0.0,
        mask_time_prob=0.0, ctc_loss_reduction="mean", ctc_zero_infinity=True, pad_token_id=0,
    )  # fmt: skip
    net = hugging_face("SEWForCTC", config).to(device)
    net.freeze_feature_encoder()
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    learned = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adamax(learned, lr=1e-3)
    lengths = torch.tensor([128000, 120000, 111000, 96000, 96000, 87500, 80000, 64000])

    def step() -> None:
        sound = torch.randn(8, 128000)
        mask = torch.arange(128000).expand(8, -1) < lengths[:, None]
        labels = torch.randint(1, 48, (8, 70))
        labels[torch.arange(70).expand(8, -1) >= torch.arange(70, 30, -5)[:, None]] = -100
        batch = {"input_values": sound * mask, "attention_mask": mask.long(), "labels": labels}
        batch = {name: value.to(device) for name, value in batch.items()}
        loss = net(**batch).loss
        if loss.isnan() or loss.isinf():
            raise SystemExit("diverged")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learned, 1.0, foreach=False)
        optimizer.step()

    return step


@program
def qwen_low_rank_checkpointed(device: str) -> Step:
    """A frozen bfloat16 model, adapters in float32 written by hand, recomputed layers, two parts."""
    import transformers

    config = transformers.Qwen2Config(
        vocab_size=48000, hidden_size=1280, intermediate_size=3456, num_hidden_layers=12, num_attention_heads=20,
        num_key_value_heads=4, max_position_embeddings=2048, use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device(device):
        net = hugging_face("Qwen2ForCausalLM", config, torch.bfloat16).requires_grad_(False)
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    net.enable_input_require_grads()
    for layer in net.model.layers:
        for part, names in ((layer.self_attn, "qkvo"), (layer.mlp, ("gate", "up", "down"))):
            for name in names:
                setattr(part, f"{name}_proj", LowRank(getattr(part, f"{name}_proj"), 32))
    learned = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=2e-4, weight_decay=0.0, foreach=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    def step() -> None:
        for _ in range(2):
            ids = torch.randint(0, 48000, (4, 1536))
            labels = ids.clone()
            labels[:, :512] = -100  # the prompt
            net(input_ids=ids.to(device), labels=labels.to(device)).loss.div(2).backward()
        nn.utils.clip_grad_norm_(learned, 0.3)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def mixer_lion_and_average(device: str) -> Step:
    """Convolutions as mixers, an optimizer of one's own, mixed pictures; the average is evaluated."""

    class Residual(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return x + super().forward(x)

    width = 512
    net = nn.Sequential(
        nn.Conv2d(3, width, 8, 8), nn.GELU(), nn.BatchNorm2d(width),
        *(nn.Sequential(
            Residual(nn.Conv2d(width, width, 7, groups=width, padding="same"), nn.GELU(), nn.BatchNorm2d(width)),
            nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width)) for _ in range(8)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 200),
    ).to(device)  # fmt: skip
    mean = copy.deepcopy(net).requires_grad_(False).eval()
    optimizer = Lion(net.parameters(), 1e-4, 0.1)

    def step() -> None:
        x = torch.rand(48, 3, 192, 192).to(device)
        y = F.one_hot(torch.randint(0, 200, (48,)), 200).float().to(device)
        share = random.betavariate(0.2, 0.2)
        other = torch.randperm(48)
        x, y = share * x + (1 - share) * x[other], share * y + (1 - share) * y[other]
        with torch.autocast("cuda", torch.bfloat16):
            loss = -(y * net(x).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        follow(mean, net, 0.001)
        right = 0
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            for _ in range(2):
                seen, labels = torch.rand(160, 3, 192, 192), torch.randint(0, 200, (160,))
                right += (mean(seen.to(device)).argmax(-1).cpu() == labels).sum().item()

    return step


@program
def skipgrams_sparse(device: str) -> Step:
    """Words and their neighbours: two tables with sparse gradients, a batch's words from a skewed count."""
    words, width = 300_000, 200
    inner, outer = nn.Embedding(words, width, sparse=True).to(device), nn.Embedding(words, width, sparse=True).to(device)  # fmt: skip
    optimizer = torch.optim.SparseAdam([*inner.parameters(), *outer.parameters()], lr=1e-3)
    often = 1.0 / torch.arange(1, words + 1, dtype=torch.float64)

    def step() -> None:
        for _ in range(2):
            centre = torch.multinomial(often, 16384, replacement=True).to(device)
            near = torch.multinomial(often, 16384, replacement=True).to(device)
            wrong = torch.multinomial(often.pow(0.75), 16384 * 8, replacement=True).view(-1, 8)
            v = inner(centre)
            good = (v * outer(near)).sum(-1)
            bad = torch.bmm(outer(wrong.to(device)), v.unsqueeze(2)).squeeze(2)
            loss = -(F.logsigmoid(good).mean() + F.logsigmoid(-bad).sum(1).mean())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return step


@program
def trainer_of_folds(device: str) -> Step:
    """Hugging Face's Trainer, a new model for each fold, which is evaluated on larger batches."""
    import transformers

    config = transformers.MPNetConfig(vocab_size=20010, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, num_labels=5)  # fmt: skip

    def step() -> None:
        settings = transformers.TrainingArguments(
            tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=96, gradient_accumulation_steps=2,
            max_steps=3, bf16=True, eval_strategy="steps", eval_steps=2, save_strategy="no", logging_steps=1, report_to=[],
            disable_tqdm=True, optim="adamw_torch_fused", lr_scheduler_type="cosine", warmup_steps=1, max_grad_norm=0.5,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=hugging_face("MPNetForSequenceClassification", config), args=settings,
            train_dataset=Sentences(400), eval_dataset=Sentences(200), data_collator=padded,
            compute_metrics=lambda said: {"right": float((said.predictions.argmax(-1) == said.label_ids).mean())},
        )  # fmt: skip
        trainer.train()
        if trainer.evaluate()["eval_loss"] < 0:
            raise SystemExit("a loss below zero")
        del trainer
        gc.collect()
        torch.cuda.empty_cache()

    return step


@program
def marian_self_critical(device: str) -> Step:
    """A translator that samples, searches with beams, and is trained on which of both was better."""
    import transformers

    config = transformers.MarianConfig(
        vocab_size=24000, d_model=512, encoder_layers=4, decoder_layers=4, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=256, pad_token_id=1, eos_token_id=0,
        decoder_start_token_id=1, forced_eos_token_id=None,
    )  # fmt: skip
    net = hugging_face("MarianMTModel", config).to(device)
    optimizer = torch.optim.RAdam(net.parameters(), lr=5e-5)

    def reward(said: Tensor, wanted: Tensor) -> Tensor:
        return torch.stack([torch.isin(row, want).float().mean() for row, want in zip(said, wanted, strict=True)])  # fmt: skip

    def step() -> None:
        source = torch.randint(2, 24000, (16, 72), device=device)
        wanted = torch.randint(2, 24000, (16, 40), device=device)
        net.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            best = net.generate(source, num_beams=5, min_new_tokens=40, max_new_tokens=40)
            tried = net.generate(source, do_sample=True, top_p=0.9, temperature=1.2, min_new_tokens=40, max_new_tokens=40)  # fmt: skip
        better = reward(tried, wanted) - reward(best, wanted)
        net.train()
        labels = tried[:, 1:].contiguous()
        with torch.autocast("cuda", torch.bfloat16):
            logits = net(input_ids=source, labels=labels).logits
        chosen = distributions.Categorical(logits=logits.float()).log_prob(labels)
        loss = -(better[:, None] * chosen).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    return step


@program
def packed_documents(device: str) -> Step:
    """Documents of many lengths in rows of 2048, which see only themselves; half of the layers recomputed."""
    width, length, words = 768, 2048, 32000

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.e, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
            self.blocks = nn.ModuleList(PackedBlock(width, 12) for _ in range(10))
            self.h = nn.Linear(width, words, bias=False)
            self.register_buffer("rates", 10000.0 ** (-torch.arange(0, 64, 2) / 64))

        def forward(self, ids: Tensor, document: Tensor, place: Tensor) -> Tensor:
            angles = (place[:, None, :, None] * self.rates).float()
            turn = angles.cos(), angles.sin()
            same = document[:, None, :, None] == document[:, None, None, :]
            within = same & torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
            x = self.e(ids)
            for number, block in enumerate(self.blocks):
                x = checkpoint(block, x, turn, within, use_reentrant=False) if number % 2 else block(x, turn, within)  # fmt: skip
            return self.h(self.norm(x))

    def rows() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        chance = random.Random(0)
        while True:
            sizes: list[int] = []
            while sum(sizes) < length:
                sizes.append(min(chance.randint(40, 900), length - sum(sizes)))
            document = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
            place = torch.cat([torch.arange(size) for size in sizes])
            yield torch.randint(0, words, (length,)), document, place

    net = Net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    source = rows()

    def step() -> None:
        batch = [next(source) for _ in range(4)]
        ids, document, place = (torch.stack(part).to(device) for part in zip(*batch, strict=True))
        with torch.autocast("cuda", torch.bfloat16):
            logits = net(ids, document, place)
            wanted = torch.where(document[:, 1:] == document[:, :-1], ids[:, 1:], -100)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), wanted.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@program
def picture_translation_gan(device: str) -> Step:
    """A generator and a judge of patches in turn, two optimizers, and a log that keeps pictures."""
    make = Translating().to(device)
    parts: list[nn.Module] = [nn.Conv2d(6, 64, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
    for a, b, stride in ((64, 128, 2), (128, 256, 2), (256, 512, 1)):
        parts += [nn.Conv2d(a, b, 4, stride, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, True)]  # fmt: skip
    judge = nn.Sequential(*parts, nn.Conv2d(512, 1, 4, 1, 1)).to(device)
    one = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999))
    two = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    gan, near = nn.BCEWithLogitsLoss(), nn.L1Loss()
    log: list[Tensor] = []

    def step() -> None:
        edges, photo = (torch.rand(16, 3, 256, 256).to(device) * 2 - 1 for _ in range(2))
        fake = make(edges)
        judge.requires_grad_(True)
        two.zero_grad()
        told_fake = judge(torch.cat((edges, fake.detach()), 1))
        told_real = judge(torch.cat((edges, photo), 1))
        loss = 0.5 * (gan(told_fake, torch.zeros_like(told_fake)) + gan(told_real, torch.ones_like(told_real)))  # fmt: skip
        loss.backward()
        two.step()
        judge.requires_grad_(False)
        one.zero_grad()
        told = judge(torch.cat((edges, fake), 1))
        (gan(told, torch.ones_like(told)) + 100.0 * near(fake, photo)).backward()
        one.step()
        log.append(fake[:4].detach().cpu())

    return step


@program
def dense_fp16_scaler_then_evaluation(device: str) -> Step:
    """A densely connected network under a gradient scaler; larger pictures of all crops afterwards."""
    grow, width = 32, 64
    parts: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    for count in (4, 8, 12, 8):
        parts.append(Dense(width, count, grow))
        width += count * grow
        if len(parts) < 10:
            parts += [nn.BatchNorm2d(width), nn.ReLU(True), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]  # fmt: skip
            width //= 2
    net = nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 120)).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        net.train()
        x, y = torch.rand(40, 3, 224, 224), torch.randint(0, 120, (40,))
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        net.eval()
        said = []
        with torch.no_grad(), torch.autocast("cuda", torch.float16):
            for _ in range(2):
                crops = torch.rand(12, 5, 3, 288, 288).to(device)
                said.append(net(crops.flatten(0, 1)).float().view(12, 5, -1).softmax(-1).mean(1))
        torch.cat(said).topk(5, -1).indices.tolist()

    return step


@program
def world_model_with_distributions(device: str) -> Step:
    """A latent world that is unrolled through time, then an actor and a critic that dream in it."""
    latent, classes, hidden, acts = 24, 24, 512, 6
    see = nn.Sequential(*(part for a, b in ((3, 48), (48, 96), (96, 192), (192, 384)) for part in (nn.Conv2d(a, b, 4, 2), nn.ELU())), nn.Flatten()).to(device)  # fmt: skip
    show = nn.Sequential(nn.Linear(hidden + latent * classes, 1024), nn.Unflatten(1, (1024, 1, 1)), nn.ConvTranspose2d(1024, 192, 5, 2), nn.ELU(), nn.ConvTranspose2d(192, 96, 5, 2), nn.ELU(), nn.ConvTranspose2d(96, 48, 6, 2), nn.ELU(), nn.ConvTranspose2d(48, 3, 6, 2)).to(device)  # fmt: skip
    cell = nn.GRUCell(latent * classes + acts, hidden).to(device)
    guess, know = nn.Linear(hidden, latent * classes).to(device), nn.Linear(hidden + 1536, latent * classes).to(device)  # fmt: skip
    actor = nn.Sequential(nn.Linear(hidden + latent * classes, 400), nn.ELU(), nn.Linear(400, 2 * acts)).to(device)  # fmt: skip
    critic = nn.Sequential(nn.Linear(hidden + latent * classes, 400), nn.ELU(), nn.Linear(400, 1)).to(device)  # fmt: skip
    world = [p for part in (see, show, cell, guess, know) for p in part.parameters()]
    a = torch.optim.Adam(world, lr=3e-4, eps=1e-5)
    b = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=8e-5, eps=1e-5)

    def kinds(logits: Tensor) -> Any:
        shaped = logits.unflatten(-1, (latent, classes))
        return distributions.Independent(distributions.OneHotCategoricalStraightThrough(logits=shaped), 1)  # fmt: skip

    def policy(state: Tensor) -> Any:
        mean, spread = actor(state).chunk(2, -1)
        return distributions.Independent(distributions.Normal(torch.tanh(mean), F.softplus(spread) + 0.1), 1)  # fmt: skip

    def observe(frames: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        seen = see(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        h, z = seen.new_zeros(frames.shape[1], hidden), seen.new_zeros(frames.shape[1], latent * classes)  # fmt: skip
        states, apart = [], []
        for now, move in zip(seen, moves, strict=True):
            h = cell(torch.cat([z, move], -1), h)
            before, after = kinds(guess(h)), kinds(know(torch.cat([h, now], -1)))
            z = after.rsample().flatten(1)
            apart.append(distributions.kl_divergence(after, before))
            states.append(torch.cat([h, z], -1))
        return torch.stack(states), torch.stack(apart)

    def dream(start: Tensor) -> tuple[Tensor, Tensor]:
        h, z = start.split((hidden, latent * classes), -1)
        states, free = [], []
        for _ in range(10):
            chosen = policy(torch.cat([h, z], -1))
            h = cell(torch.cat([z, chosen.rsample()], -1), h)
            z = kinds(guess(h)).rsample().flatten(1)
            states.append(torch.cat([h, z], -1))
            free.append(chosen.base_dist.entropy().sum(-1))
        return torch.stack(states), torch.stack(free)

    def step() -> None:
        frames = torch.randint(0, 256, (20, 24, 3, 64, 64), dtype=torch.uint8).to(device).float() / 255 - 0.5  # fmt: skip
        states, apart = observe(frames, torch.rand(20, 24, acts).to(device))
        drawn = distributions.Independent(distributions.Normal(show(states.flatten(0, 1)), 1.0), 3)
        loss = apart.clamp(min=1.0).mean() - drawn.log_prob(frames.flatten(0, 1)).mean()
        a.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(world, 100.0)
        a.step()
        dreamt, free = dream(states.detach().flatten(0, 1))
        value = critic(dreamt).squeeze(-1)
        b.zero_grad(set_to_none=True)
        (-(value + 1e-3 * free).mean() + 0.5 * (critic(dreamt.detach()).squeeze(-1) - value.detach() - 1).square().mean()).backward()  # fmt: skip
        b.step()

    return step


@program
def masked_words_adafactor(device: str) -> Step:
    """Words are hidden as the collator chooses; only those are predicted. Adafactor, four parts."""
    import transformers

    config = transformers.RoFormerConfig(vocab_size=26000, embedding_size=640, hidden_size=640, num_hidden_layers=10, num_attention_heads=10, intermediate_size=2560, max_position_embeddings=512)  # fmt: skip
    net = hugging_face("RoFormerModel", config).to(device)
    head = nn.Sequential(nn.Linear(640, 640), nn.GELU(), nn.LayerNorm(640), nn.Linear(640, 26000)).to(device)  # fmt: skip
    parameters = [*net.parameters(), *head.parameters()]
    optimizer = transformers.optimization.Adafactor(parameters, lr=None, scale_parameter=True, relative_step=True, warmup_init=True)  # fmt: skip

    def collate(rows: list[Tensor]) -> dict[str, Tensor]:
        ids = torch.stack(rows)
        hidden = torch.bernoulli(torch.full(ids.shape, 0.15)).bool()
        labels = torch.where(hidden, ids, -100)
        return {"input_ids": ids.masked_fill(hidden, 4), "labels": labels}

    data = [torch.randint(5, 26000, (384,)) for _ in range(48)]
    loader: Any = DataLoader(data, batch_size=12, shuffle=True, collate_fn=collate)

    def step() -> None:
        for batch in loader:
            ids, labels = batch["input_ids"].to(device), batch["labels"].to(device)
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.autocast("cuda", torch.bfloat16))
                seen = net(input_ids=ids).last_hidden_state
                chosen = labels != -100
                loss = F.cross_entropy(head(seen[chosen]).float(), labels[chosen])
            (loss / len(loader)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
