"""The loop of the benchmarks runs what is selected and tells what was rewarded."""

from types import SimpleNamespace

import torch

from benchmarks.loop import additive, rounds, run_rounds, timed


class Cycle:
    """Pulls arm t in round t, and writes down what it is told."""

    def init(self, kernel, noise_var, trials, rounds):
        self.given, self.told = (kernel, noise_var, trials, rounds), []
        return SimpleNamespace(t=0)

    def select(self, state, uniform):
        self.told.append(uniform)
        return SimpleNamespace(arms=torch.full_like(uniform, state.t, dtype=torch.long))

    def observe(self, state, arms, rewards, uniform):
        state.t += 1
        self.told.append((arms, rewards, uniform))


F = torch.tensor([[0.0, 1.0, 2.0], [10.0, 20.0, 30.0]])
NOISE = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])


def test_rewards_are_f_at_the_arms_and_the_noise_of_the_round():
    algorithm, uniforms = Cycle(), torch.rand(3, 2)
    chosen = run_rounds(algorithm, "kernel", 0.5, F, NOISE, uniforms)
    assert chosen.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert algorithm.given == ("kernel", 0.5, 2, 3)
    expected = F.T + NOISE
    for t in range(3):
        drawn, (arms, rewards, uniform) = algorithm.told[2 * t : 2 * t + 2]
        assert torch.equal(drawn, uniforms[t])
        assert torch.equal(uniform, uniforms[t])
        assert torch.equal(arms, chosen[t])
        assert torch.equal(rewards, expected[t])


def test_every_round_is_timed_once():
    algorithm = Cycle()
    state = algorithm.init(None, 1.0, 2, 3)
    seen = list(timed(rounds(algorithm, state, additive(F, NOISE), torch.zeros(3, 2))))
    assert [one.arms.tolist() for _, one in seen] == [[0, 0], [1, 1], [2, 2]]
    assert all(seconds >= 0.0 for seconds, _ in seen)
