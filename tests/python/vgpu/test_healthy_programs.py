"""Programs that look at values: they go the way that a healthy run goes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributions as D
from torch import nn

import peakline

BATCH, VOCABULARY, LONGEST = 3, 50, 60


@pytest.fixture(autouse=True)
def gpu() -> Iterator[peakline.virtual_gpu]:
    gpu = peakline.virtual_gpu("h200")
    with gpu:
        yield gpu


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.embedding(tokens))
        return scores


def is_done(tokens: torch.Tensor, end: int) -> torch.Tensor:
    """Stopping criteria, joined as libraries do: the length is known, the last token is not."""
    done = torch.full((tokens.shape[0],), tokens.shape[1] >= LONGEST, device="cuda")
    return done | torch.isin(tokens[:, -1], torch.tensor([end], device="cuda"))


@pytest.mark.parametrize("end", [0, 1, 2])
@pytest.mark.parametrize("sampled", [False, True])
def test_generation_ends_at_its_longest_and_not_before(sampled: bool, end: int) -> None:
    model = Language().cuda()
    tokens = torch.zeros(BATCH, 1, dtype=torch.long, device="cuda")
    unfinished = torch.ones(BATCH, dtype=torch.long, device="cuda")
    finished = False
    rounds = 0
    with torch.no_grad():
        while not finished and rounds < 100:
            scores = model(tokens)[:, -1].float()
            if sampled:
                chosen = torch.multinomial(scores.softmax(-1), 1).squeeze(1)
            else:
                chosen = scores.argmax(-1)
            chosen = chosen * unfinished + 7 * (1 - unfinished)
            tokens = torch.cat([tokens, chosen[:, None]], dim=-1)
            unfinished = unfinished & ~is_done(tokens, end)
            finished = bool(unfinished.max() == 0)
            rounds += 1
    assert tokens.shape == (BATCH, LONGEST)


def test_beam_search_runs_to_its_full_length() -> None:
    model, beams, end = Language().cuda(), 4, 1
    running = torch.zeros(BATCH, beams, 1, dtype=torch.long, device="cuda")
    running_scores = torch.zeros(BATCH, beams, device="cuda")
    running_scores[:, 1:] = -1e9
    scores = torch.full((BATCH, beams), -1e9, device="cuda")
    finished = torch.zeros(BATCH, beams, dtype=torch.bool, device="cuda")
    goes_on = True
    with torch.no_grad():
        while goes_on and running.shape[-1] < 100:
            logits = model(running.flatten(0, 1))[:, -1].float().log_softmax(-1)
            total = (logits.view(BATCH, beams, -1) + running_scores[:, :, None]).flatten(1)
            best = total.topk(2 * beams)
            beam, token = best.indices // VOCABULARY, best.indices % VOCABULARY
            rows = torch.gather(running, 1, beam[:, :, None].expand(-1, -1, running.shape[-1]))
            rows = torch.cat([rows, token[:, :, None]], -1)
            stops = is_done(rows.flatten(0, 1), end).view(BATCH, 2 * beams)
            open_scores = best.values + stops.float() * -1e9
            kept = open_scores.topk(beams)
            running_scores = kept.values
            running = torch.gather(rows, 1, kept.indices[:, :, None].expand(-1, -1, rows.shape[-1]))
            ended = best.values + (~stops).float() * -1e9
            merged = torch.cat([scores, ended], 1).topk(beams)
            finished = torch.gather(torch.cat([finished, stops], 1), 1, merged.indices)
            scores = merged.values
            worst = torch.where(finished, scores.min(1, keepdim=True)[0], -1e9)
            may_improve = torch.any(running_scores[:, :1] / rows.shape[-1] > worst)
            is_open = ~(torch.all(finished) & False)
            can_continue = ~torch.all(stops)
            goes_on = bool(may_improve & is_open & can_continue)
    assert running.shape == (BATCH, beams, LONGEST)


def test_distributions_accept_what_a_healthy_run_gives_them() -> None:
    mean = nn.Linear(8, 4).cuda()(torch.randn(2, 8, device="cuda"))
    scale = mean.exp()
    for distribution in (
        D.Normal(mean, scale, validate_args=True),
        D.Normal(mean, nn.functional.softplus(mean) + 1e-3, validate_args=True),
        D.Categorical(logits=mean, validate_args=True),
        D.Categorical(probs=mean.softmax(-1), validate_args=True),
        D.Bernoulli(logits=mean, validate_args=True),
        D.Bernoulli(probs=mean.sigmoid(), validate_args=True),
        D.Poisson(scale, validate_args=True),
        D.Independent(D.Normal(mean, scale), 1, validate_args=True),
        D.TransformedDistribution(D.Normal(mean, scale), [D.TanhTransform()]),
    ):
        drawn = distribution.sample()
        assert distribution.log_prob(drawn).is_cuda
    assert D.kl_divergence(D.Normal(mean, scale), D.Normal(0.0, 1.0)).shape == (2, 4)
    with pytest.raises(ValueError, match="scale"):
        D.Normal(mean, -scale.abs() - 1, validate_args=True)


def test_distributions_accept_rows_that_sum_to_one_and_products_that_are_positive() -> None:
    """Which no interval of the elements tells."""
    mean = nn.Linear(8, 4).cuda()(torch.randn(2, 8, device="cuda"))
    scale = nn.functional.softplus(mean)
    factor = torch.tril(torch.randn(4, 4, device="cuda"), -1) + torch.diag_embed(scale[0] + 1e-3)
    for distribution in (
        D.OneHotCategorical(logits=mean, validate_args=True),
        D.OneHotCategoricalStraightThrough(probs=mean.softmax(-1), validate_args=True),
        D.RelaxedOneHotCategorical(torch.ones((), device="cuda"), logits=mean, validate_args=True),
        D.Dirichlet(scale, validate_args=True),
        D.Beta(scale, scale + 1, validate_args=True),
        D.Uniform(mean, mean + 2, validate_args=True),
        D.MultivariateNormal(mean, torch.diag_embed(scale), validate_args=True),
        D.MultivariateNormal(mean[0], factor @ factor.T, validate_args=True),
        D.MultivariateNormal(mean[0], scale_tril=factor, validate_args=True),
    ):
        assert distribution.log_prob(distribution.sample()).is_cuda
    wrong = -torch.eye(4, device="cuda")
    with pytest.raises(ValueError, match="scale_tril"):
        D.MultivariateNormal(mean[0], scale_tril=wrong, validate_args=True)


def loss_of(model: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = model(torch.randn(4, 8, device="cuda")).square().mean()
    return loss


def test_careful_scripts_find_a_finite_loss() -> None:
    loss = loss_of(nn.Linear(8, 8).cuda())
    assert torch.isfinite(loss)
    assert bool(torch.isfinite(loss).all())
    assert math.isfinite(loss.item())
    assert not torch.isnan(loss)
    assert not torch.isinf(loss).any()
    assert not torch.isnan(loss).any().item()
    assert loss.item() == loss.item()
    assert not (loss != loss).any()
    assert loss < float("inf")


def has_inf_or_nan(gradient: torch.Tensor) -> bool:
    total = float(gradient.float().sum())
    return total in (float("inf"), -float("inf"), -1) or total != total


def test_no_overflow_is_found_in_gradients() -> None:
    model = nn.Linear(1024, 1024).cuda()
    model(torch.randn(4, 1024, device="cuda")).square().mean().backward()
    for parameter in model.parameters():
        gradient = parameter.grad
        assert gradient is not None
        assert not has_inf_or_nan(gradient)
        wrong = gradient.float().isnan().logical_or(gradient.float().isinf())
        assert wrong.float().max().item() == 0
        norm = torch.linalg.vector_norm(gradient)
        bad = norm.isnan().logical_or(norm.isinf())
        norm = bad * torch.tensor(-1.0, device="cuda") + bad.logical_not() * norm
        assert norm.item() != -1
        assert norm.item() >= 0
    found = torch.zeros(1, dtype=torch.uint8, device="cuda")
    found[0] = bool(wrong.any())
    assert found[0].item() == 0


def test_clipping_accepts_the_norm() -> None:
    model = nn.Linear(8, 8).cuda()
    loss_of(model).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    assert norm.item() >= 0


def test_a_scaler_steps_and_keeps_its_scale() -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        scaler.scale(loss_of(model)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 65536.0
    assert len(optimizer.state) == 2


def test_early_stopping_waits_since_a_loss_falls_with_every_step() -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, patience, epochs = float("inf"), 2, 0
    for _ in range(20):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        epochs += 1
        if loss_of(model).item() < best:
            best = loss_of(model).item()
            patience = 2
        else:
            patience -= 1
        if patience == 0:
            break
    assert epochs == 20
    assert best < 1


def test_a_search_that_waits_for_convergence_runs_to_its_bound() -> None:
    x = torch.randn(16, device="cuda")
    rounds = 0
    converged = False
    while not converged and rounds < 50:
        moved = x - 0.1 * x.tanh()
        converged = bool((moved - x).abs().max() < 1e-6)
        x = moved
        rounds += 1
    assert rounds == 50


@pytest.mark.parametrize(
    ("std", "a", "b"), [(0.02, -0.06, 0.06), (1.0, -2.0, 2.0), (0.02, 0.5, 0.6)]
)
@pytest.mark.filterwarnings("ignore:mean is more than")
def test_truncated_normal_weights_are_drawn_until_none_is_out_of_bounds(
    std: float, a: float, b: float
) -> None:
    weight = torch.empty(1 << 20, device="cuda")
    before = torch.cuda.memory_allocated()
    nn.init.trunc_normal_(weight, std=std, a=a, b=b)
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= 4 * before  # later draws lie beside the first


def test_results_that_a_program_checks_to_be_alike_are() -> None:
    model = nn.Linear(8, 8).cuda()
    x = torch.randn(4, 8, device="cuda")
    rows = model(x).softmax(-1).sum(-1)
    assert torch.allclose(rows, torch.ones(4, device="cuda"))
    assert model(x).allclose(model(x), atol=0.1)
    torch.testing.assert_close(model(x), model(x))
    zeros, ones = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    assert not torch.allclose(zeros, ones)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(zeros, ones)
