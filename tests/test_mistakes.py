"""Mistakes that users make: each gets one sentence of ours that says what to change.

A row is a call and words of the sentence. The error must be a ``ValueError`` or ``TypeError`` that was raised in this
package: one raised inside torch, numpy or the standard library is a raw one, which says nothing of the argument.
"""

import re
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel
from torch.distributions import Normal, Uniform

import bo_robust
from bo_robust import acquisition, algorithms, confidence, covariance, features, functionals, tails, truncation
from bo_robust.confidence import ConstantWidth, FiniteWidth
from bo_robust.confidence import information_gain as gains
from bo_robust.environments import ContinuousEnvironment, FiniteEnvironment, PerturbationEnvironment
from bo_robust.methods import create_method
from bo_robust.models import (
    BKBModel,
    Candidate,
    CandidateEnsemble,
    FeatureGP,
    FourierMap,
    NystromMap,
    TruncatedFeatureGP,
    TruncatedGP,
    candidate,
    candidate_grid,
)
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.posteriors.dictionary import NystromDictionary
from bo_robust.posteriors.streams import ArmStream
from bo_robust.study import Arms, Box, Float, Integer, Study
from bo_robust.truncation import NoTruncation, TGPTruncation

HOME = str(Path(bo_robust.__file__).parent)
LONGEST = 500  # characters of a sentence

X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64).reshape(4, 2)
Y = X.sum(-1, keepdim=True)
Z = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
BOX = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
LEVEL, WIDTH = TGPTruncation(4.0, 1.0), ConstantWidth(2.0)
ARMS = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
U = [{"kernel": "rbf", "lengthscale": 0.3, "noise_var": 0.1}]
REWARDS = np.random.default_rng(0).standard_normal(200)
SPACE = {"x": (0.0, 1.0)}


def gp():
    return SingleTaskGP(X, Y)


def truncated(train_X=X, train_Y=Y, level=LEVEL, **options):
    return TruncatedGP(train_X, train_Y, level, **{"noise_var": 0.1} | options)


def ensemble(train_X=X, train_Y=Y, U=U, width=WIDTH, noise_scale=0.1, delta=0.1, **options):
    return CandidateEnsemble(train_X, train_Y, U, width, noise_scale, delta, **options)


def risk(environment=None, functional=0.1, width=2.0, **options):
    environment = FiniteEnvironment(Z) if environment is None else environment
    return acquisition.ValueAtRiskUCB(gp(), environment, functional, width, **options)


def kernel(arms=ARMS):
    return ArmKernel.from_covariance(covariance.SquaredExponential(0.3), arms)


def state(algorithm=None, **options):
    return (algorithm or algorithms.GPUCB(WIDTH)).init(kernel(), **{"noise_var": 0.1} | options)


def observe(arms, rewards, algorithm=None):
    algorithm = algorithm or algorithms.GPUCB(WIDTH)
    return algorithm.observe(state(algorithm, trials=2), arms, rewards)


def study(space=SPACE, method="tgp-ucb", **settings):
    with Study.create(FOLDER[0] / "a.study", space, method, seed=0, **settings) as made:
        return made


def told(act):
    with Study.create(FOLDER[0] / "a.study", SPACE, "gp-ucb", seed=0) as made:
        return act(made, made.ask()[0])


FOLDER = [Path()]


@pytest.fixture(autouse=True)
def _folder(tmp_path):
    FOLDER[0] = tmp_path


MISTAKES = {
    # covariances
    "no length": (lambda: covariance.Matern(2.5, 0.0), "lengthscale must be a finite number > 0, got 0.0"),
    "negative length": (lambda: covariance.SquaredExponential(-1.0), "lengthscale must be a finite number > 0"),
    "length as text": (
        lambda: covariance.SquaredExponential("0.2"),
        "lengthscale must be a positive number or a tuple",
    ),
    "lengths as list": (
        lambda: covariance.SquaredExponential([0.2, 0.3]),
        "tuple of one per dimension, got [0.2, 0.3]",
    ),
    "lengths as array": (lambda: covariance.Matern(2.5, np.array([0.2])), "tuple of one per dimension"),
    "no lengths": (lambda: covariance.Matern(2.5, ()), "tuple of one per dimension, got ()"),
    "length NaN": (lambda: covariance.Matern(2.5, float("nan")), "lengthscale must be a finite number > 0, got nan"),
    "length None": (lambda: covariance.Matern(2.5, None), "lengthscale must be a positive number"),
    "other nu": (lambda: covariance.Matern(2.0, 0.2), "nu must be 0.5, 1.5 or 2.5, got 2.0"),
    "nu as text": (lambda: covariance.Matern("2.5", 0.2), "nu must be 0.5, 1.5 or 2.5, got '2.5'"),
    "nu as array": (lambda: covariance.Matern(np.array([2.5, 1.5]), 0.2), "nu must be 0.5, 1.5 or 2.5"),
    "no output scale": (lambda: covariance.Matern(2.5, 0.2, 0.0), "outputscale must be a finite number > 0"),
    "lengths of other points": (
        lambda: ArmKernel.from_covariance(covariance.Matern(2.5, (0.2, 0.3)), ARMS),
        "2 lengthscales for points of 1 dimensions",
    ),
    "kernel that is none": (
        lambda: covariance.GPyTorchCovariance("rbf"),
        "kernel must be a GPyTorch kernel, got 'rbf'",
    ),
    "callback that is none": (lambda: ArmKernel.from_callback(torch.eye(3), torch.ones(3)), "must be a function"),
    # kernels over arms
    "arms as array": (lambda: kernel(ARMS.numpy()), "arms must be a torch tensor, got ndarray; convert it"),
    "arms as list": (lambda: kernel(ARMS.tolist()), "arms must be a torch tensor, got list; convert it"),
    "arms half": (lambda: kernel(ARMS.half()), "arms must be floating point, float32 or float64, got torch.float16"),
    "arms whole": (lambda: kernel(torch.arange(4).unsqueeze(-1)), "arms must be floating point"),
    "arms flat": (lambda: kernel(ARMS[:, 0]), "arms must be n x d with n >= 1, got shape (6,)"),
    "no arms": (lambda: kernel(ARMS[:0]), "arms must be n x d with n >= 1"),
    "arms NaN": (lambda: kernel(ARMS * float("nan")), "arms has 6 NaN or infinite entries of 6"),
    "covariance that is none": (lambda: ArmKernel.from_covariance(0.2, ARMS), "covariance must be one of bo_robust"),
    "a GPyTorch kernel": (lambda: ArmKernel.from_covariance(RBFKernel(), ARMS), "GPyTorchCovariance(kernel)"),
    "matrix as array": (lambda: ArmKernel.from_matrix(np.eye(3)), "the kernel matrix must be a torch tensor"),
    "matrix as list": (lambda: ArmKernel.from_matrix([[1.0]]), "the kernel matrix must be a torch tensor, got list"),
    "matrix half": (lambda: ArmKernel.from_matrix(torch.eye(3).half()), "the kernel matrix must be floating point"),
    "matrix not square": (lambda: ArmKernel.from_matrix(torch.ones(2, 3)), "the kernel matrix must be n x n"),
    "matrix not symmetric": (lambda: ArmKernel.from_matrix(torch.eye(3) + torch.ones(3, 3).triu()), "not symmetric"),
    "matrix not positive": (lambda: ArmKernel.from_matrix(-torch.eye(3)), "not positive semi-definite"),
    "arms of another matrix": (lambda: ArmKernel.from_matrix(torch.eye(3), ARMS.float()), "arms must be 3 x d"),
    # widths and levels
    "width of no arms": (lambda: FiniteWidth(0, 0.1), "num_arms must be a whole number >= 1, got 0"),
    "arms not whole": (lambda: FiniteWidth(2.5, 0.1), "num_arms must be a whole number >= 1, got 2.5"),
    "arms as text": (lambda: FiniteWidth("ten", 0.1), "num_arms must be a whole number >= 1, got 'ten'"),
    "arms None": (lambda: FiniteWidth(None, 0.1), "num_arms must be a whole number >= 1, got None"),
    "arms infinite": (lambda: FiniteWidth(float("inf"), 0.1), "num_arms must be a whole number >= 1, got inf"),
    "delta of 1": (lambda: FiniteWidth(5, 1.0), "delta (the failure probability) must be strictly between 0 and 1"),
    "delta as text": (lambda: FiniteWidth(5, "0.1"), "delta (the failure probability) must be strictly between"),
    "delta None": (lambda: FiniteWidth(5, None), "delta (the failure probability) must be strictly between"),
    "delta as array": (lambda: FiniteWidth(5, np.array([0.1, 0.2])), "delta (the failure probability)"),
    "width negative": (lambda: ConstantWidth(-1.0), "value must be a finite number >= 0"),
    "width as text": (lambda: ConstantWidth("2"), "value must be a finite number >= 0, got '2'"),
    "width None": (lambda: ConstantWidth(None), "value must be a finite number >= 0, got None"),
    "scale of 0": (lambda: ConstantWidth(1.0, scale=0.0), "scale must be a finite number > 0"),
    "scale as text": (lambda: confidence.LogWidth(scale="1"), "scale must be a finite number > 0, got '1'"),
    "round 0": (lambda: WIDTH(0), "t is the round about to be played, counted from 1, got 0"),
    "round as text": (lambda: WIDTH("1"), "t is the round about to be played, counted from 1, got '1'"),
    "norm None": (lambda: confidence.SelfNormalisedWidth(None, 1.0, 0.1), "norm_bound must be a finite number > 0"),
    "accuracy of 1": (lambda: confidence.BKBWidth(1.0, 1.0, 1.0, 0.1, 1.0), "epsilon (accuracy of the dictionary)"),
    "accuracy as text": (lambda: confidence.BKBWidth(1.0, 1.0, 1.0, 0.1, "x"), "epsilon (accuracy of the dictionary)"),
    "no draw": (lambda: confidence.RandomisedWidth(5)(1), "RandomisedWidth needs `uniform`"),
    "draw of 1": (lambda: confidence.RandomisedWidth(5)(1, 0.0, 1.0), "uniform must be in [0, 1), got 1.0"),
    "moment as text": (lambda: TGPTruncation("4", 1.0), "moment_bound must be a finite number > 0, got '4'"),
    "moment None": (lambda: TGPTruncation(None, 1.0), "moment_bound must be a finite number > 0, got None"),
    "moment of 0": (lambda: TGPTruncation(0.0, 1.0), "moment_bound must be a finite number > 0, got 0.0"),
    "moment as array": (lambda: TGPTruncation(np.array([4.0, 1.0]), 1.0), "moment_bound must be a finite number > 0"),
    "moment true": (lambda: TGPTruncation(True, 1.0), "moment_bound must be a finite number > 0, got True"),
    "alpha of 2": (lambda: TGPTruncation(4.0, 2.0), "alpha must be in (0, 1]"),
    "alpha as text": (lambda: TGPTruncation(4.0, "1"), "alpha must be in (0, 1]"),
    "alpha NaN": (lambda: TGPTruncation(4.0, float("nan")), "alpha must be in (0, 1]"),
    "horizon of 0": (lambda: truncation.ATAFourierTruncation(4.0, 1.0, 0.1, 0, 5), "horizon must be a whole number"),
    "horizon NaN": (lambda: truncation.ATAFourierTruncation(4.0, 1.0, 0.1, float("nan"), 5), "horizon must be a whole"),
    "level of round 0": (lambda: LEVEL(0), "t is the round about to be played, counted from 1, got 0"),
    "unknown rule": (
        lambda: truncation.truncate(Y, 1.0, "drop"),
        "rule must be one of zero, clip, residual; got 'drop'",
    ),
    "rule of a mean without it": (
        lambda: truncation.truncate(Y, 1.0, "residual"),
        "rule 'residual' needs the posterior",
    ),
    "rewards as list": (lambda: truncation.truncate([1.0, 2.0], 1.0), "y must be a torch tensor, got list"),
    "gain of no noise": (lambda: gains.exact(torch.eye(3), 0.0), "noise_var must be a finite number > 0"),
    "gain of an array": (lambda: gains.exact(np.eye(3), 1.0), "K must be a torch tensor, got ndarray"),
    "bound of a list": (
        lambda: confidence.gp_ucb_regret_bound([1.0], torch.ones(1), 1.0),
        "widths must be a torch tensor, got list",
    ),
    # features
    "no nodes": (lambda: features.FourierFeatures(0.2, 0, ((0.0, 1.0),)), "nodes must be a whole number >= 1, got 0"),
    "nodes as text": (lambda: features.FourierFeatures(0.2, "8", ((0.0, 1.0),)), "nodes must be a whole number >= 1"),
    "box upside down": (
        lambda: features.FourierFeatures(0.2, 8, ((1.0, 0.0),)),
        "bounds must hold one (lower, upper) per dimension",
    ),
    "box as text": (
        lambda: features.FourierFeatures(0.2, 8, "unit"),
        "bounds must hold one (lower, upper) per dimension",
    ),
    "features of an array": (
        lambda: features.FourierFeatures(0.2, 8, ((0.0, 1.0),))(ARMS.numpy()),
        "X must be a torch tensor, got ndarray",
    ),
    "features outside": (lambda: features.FourierFeatures(0.2, 8, ((0.0, 1.0),))(ARMS + 5.0), "widen `bounds`"),
    "too many frequencies": (lambda: features.FourierFeatures(0.2, 100, ((0.0, 1.0),) * 8), "nodes"),
    "error of 2": (lambda: features.fewest_nodes(0.2, ((0.0, 1.0),), 2.0), "error must be in [1e-12, 1)"),
    "oversampling of 0": (lambda: NystromDictionary(0.0), "oversampling must be a finite number > 0"),
    "redraw of 0": (lambda: NystromDictionary(5.0, 0.5), "redraw (growth of t between two dictionaries)"),
    "redraw as text": (lambda: NystromDictionary(5.0, "1"), "redraw (growth of t between two dictionaries)"),
    "stream of an array": (lambda: ArmStream.of_tensor(ARMS.numpy()), "arms must be a torch tensor, got ndarray"),
    "stop before start": (lambda: ArmStream(lambda a, b: ARMS, 3, 2), "stop must be an int >= start = 3, got 2"),
    # algorithms over arms
    "width as number": (lambda: algorithms.GPUCB(2.0), "width must be a schedule, such as ConstantWidth(2.0), got 2.0"),
    "width as class": (lambda: algorithms.GPUCB(ConstantWidth), "width must be a schedule, such as ConstantWidth(2.0)"),
    "level as number": (lambda: algorithms.TGPUCB(WIDTH, 3.0), "truncation must be a schedule, such as TGPTruncation("),
    "rule of TGP": (lambda: algorithms.TGPUCB(WIDTH, LEVEL, "drop"), "rule must be one of zero, clip, residual"),
    "root of ATA": (
        lambda: algorithms.ATAGPUCB(WIDTH, LEVEL, NystromDictionary(5.0), "qr"),
        "root must be one of symmetric, cholesky; got 'qr'",
    ),
    "features of ATA": (lambda: algorithms.ATAGPUCB(WIDTH, LEVEL, 16), "features must be a feature map"),
    "groups even": (
        lambda: state(algorithms.MoMGPUCB(WIDTH, features.FourierFeatures(0.2, 8, ((0.0, 1.0),)), 4)),
        "groups",
    ),
    "oversampling of BKB": (lambda: algorithms.BKB(WIDTH, 0.5), "oversampling"),
    "oversampling of BKB in a study": (
        lambda: create_method("bkb", {"oversampling": 0.0}),
        "a finite number >= 1, got",
    ),
    "range of a base class": (lambda: confidence.RandomisedWidth(num_arms=0), "num_arms must be a whole number >= 2"),
    "published horizon": (
        lambda: truncation.PublishedATATruncation(1.0, 1.0, horizon=0, num_directions=8),
        "horizon must be a whole number >= 2",
    ),
    "oversampling as text": (lambda: algorithms.BKB(WIDTH, "5"), "oversampling"),
    "redraw of BKB": (lambda: algorithms.BKB(WIDTH, 5.0, "never"), "redraw must be one of fresh, persistent"),
    "batch of mini": (lambda: algorithms.MiniGPUCB(WIDTH, 0.5), "batch_constant"),
    "batch of mini as text": (lambda: algorithms.MiniGPUCB(WIDTH, "1.1"), "batch_constant"),
    "batch of BBKB": (lambda: algorithms.BBKB(WIDTH, 5.0, -1.0), "batch_constant"),
    "lengths of A-GP-UCB": (lambda: algorithms.AGPUCB(WIDTH, ()), "lengthscales must hold one number per candidate"),
    "one length of A-GP-UCB": (
        lambda: algorithms.AGPUCB(WIDTH, 0.2),
        "lengthscales must hold one number per candidate",
    ),
    "noise of HE": (lambda: algorithms.HEGPUCB(WIDTH, 0.0, 0.1), "noise_scale must be a finite number > 0"),
    "base of HE": (lambda: algorithms.HEGPUCB(WIDTH, 1.0, 0.1, base="tgp-ucb"), "base must be an algorithm"),
    "conditions of V-UCB": (lambda: algorithms.VUCB(WIDTH, 0.1, 0), "num_conditions must be a whole number >= 1"),
    "alpha of V-UCB": (lambda: algorithms.VUCB(WIDTH, 10, 2), "functional must be one of bo_robust.functionals"),
    "probabilities of V-UCB": (lambda: algorithms.VUCB(WIDTH, 0.1, 2, (0.5, 0.6)), "probabilities must sum to 1"),
    "probabilities as text": (lambda: algorithms.VUCB(WIDTH, 0.1, 2, "ab"), "probabilities must be"),
    "pairs that do not fit": (lambda: state(algorithms.VUCB(WIDTH, 0.1, 4)), "are not pairs of designs with 4"),
    "margin of 0": (lambda: algorithms.ProbabilityOfImprovement(0.0), "margin must be a finite number > 0"),
    "no noise": (lambda: state(noise_var=0.0), "noise_var must be a finite number > 0, got 0.0"),
    "noise NaN": (lambda: state(noise_var=float("nan")), "noise_var must be a finite number > 0"),
    "noise as text": (lambda: state(noise_var="0.1"), "noise_var must be"),
    "noise None": (lambda: state(noise_var=None), "noise_var must be"),
    "noise of other trials": (lambda: state(noise_var=torch.ones(3), trials=2), "one number or one per trial (2)"),
    "noise below rounding": (
        lambda: algorithms.GPUCB(WIDTH).init(kernel(ARMS.float()), 1e-9),
        "noise_var must be at least 6e-05 in torch.float32",
    ),
    "no trials": (lambda: state(trials=0), "trials must be a whole number >= 1"),
    "trials as text": (lambda: state(trials="2"), "trials must be a whole number >= 1, got '2'"),
    "prior mean as list": (lambda: state(prior_mean=[0.0] * 6), "prior_mean must be a torch tensor"),
    "prior mean of other arms": (lambda: state(prior_mean=ARMS[:3, 0]), "prior_mean must be 6 or 1 x 6"),
    "a matrix for a kernel": (lambda: algorithms.GPUCB(WIDTH).init(torch.eye(3), 0.1), "kernel must be an ArmKernel"),
    "reward of one trial": (lambda: observe(torch.zeros(2).long(), torch.ones(1).double()), "one entry per trial (2)"),
    "reward as number": (lambda: observe(torch.zeros(2).long(), 1.0), "rewards must be a torch tensor, got float"),
    "arm as number": (lambda: observe(0, torch.ones(2).double()), "arms must be a torch tensor, got int"),
    "arm as float": (lambda: observe(torch.zeros(2), torch.ones(2).double()), "arms must be of dtype long"),
    "arm that is none": (lambda: observe(torch.tensor([0, 9]), torch.ones(2).double()), "arm"),
    "rewards in float32": (lambda: observe(torch.zeros(2).long(), torch.ones(2)), "rewards is torch.float32 on cpu"),
    "no draw for BKB": (
        lambda: observe(torch.zeros(2).long(), torch.ones(2).double(), algorithms.BKB(WIDTH, 5.0)),
        "observe needs `uniform`",
    ),
    # models
    "X as array": (lambda: truncated(X.numpy()), "train_X must be a torch tensor, got ndarray; convert it"),
    "Y as array": (lambda: truncated(X, Y.numpy()), "train_Y must be a torch tensor, got ndarray"),
    "X as list": (lambda: truncated(X.tolist()), "train_X must be a torch tensor, got list"),
    "Y flat": (lambda: truncated(X, Y[:, 0]), "TruncatedGP needs train_X batch_shape x n x d and train_Y"),
    "Y of other rows": (lambda: truncated(X, Y[:3]), "TruncatedGP needs train_X batch_shape x n x d and train_Y"),
    "two outputs": (lambda: truncated(X, Y.expand(4, 2)), "model several outputs with a ModelListGP"),
    "no rows": (lambda: truncated(X[:0], Y[:0]), "with n >= 1"),
    "Y NaN": (lambda: truncated(X, Y * float("nan")), "train_Y has 4 NaN or infinite entries of 4"),
    "X half": (lambda: truncated(X.half(), Y.half()), "train_X must be floating point, float32 or float64"),
    "X whole": (lambda: truncated(X.long(), Y), "train_X must be floating point"),
    "X and Y of two dtypes": (
        lambda: truncated(X, Y.float()),
        "train_Y is torch.float32 on cpu, train_X torch.float64",
    ),
    "level as a plain number": (lambda: truncated(level=3.0), "truncation must be"),
    "level as class": (lambda: truncated(level=NoTruncation), "truncation must be"),
    "level as text": (lambda: truncated(level="tgp"), "truncation must be"),
    "levels of other rows": (lambda: truncated(level=Y[:2] + 1.0), "truncation levels must be 4 x 1"),
    "levels of 0": (lambda: truncated(level=Y * 0.0), "truncation levels must be > 0"),
    "noise too small": (lambda: truncated(noise_var=1e-9), "noise_var must be at least 1e-06 in torch.float64"),
    "model noise as text": (lambda: truncated(noise_var="0.1"), "noise_var must be a finite number > 0, got '0.1'"),
    "noise twice": (lambda: truncated(train_Yvar=Y + 1.0), "give one of noise_var"),
    "rule of a model": (lambda: truncated(rule="residual"), "TruncatedGP has the rules 'zero' and 'clip'"),
    "new rewards as list": (
        lambda: truncated().condition_on_observations(X[:1], [[1.0]]),
        "Y must be a torch tensor, got list",
    ),
    "new points as array": (
        lambda: truncated().condition_on_observations(X[:1].numpy(), Y[:1]),
        "X must be a torch tensor, got ndarray",
    ),
    "new targets as list": (lambda: truncated().set_train_data(targets=[1.0] * 4), "targets must be a torch tensor"),
    "features as text": (lambda: FeatureGP(X, Y, "fourier"), "features must be FourierMap(nodes) or NystromMap("),
    "features of X as array": (lambda: FeatureGP(X.numpy(), Y, FourierMap(4)), "train_X must be a torch tensor"),
    "points outside the box": (lambda: FeatureGP(X + 5.0, Y, FourierMap(4)), "bounds"),
    "box of other points": (lambda: FeatureGP(X, Y, FourierMap(4, [[0.0], [1.0]])), "bounds must be 2 x 2"),
    "box of words": (lambda: FeatureGP(X, Y, FourierMap(4, "unit")), "bounds must be 2 x 2"),
    "kernel of another family": (
        lambda: FeatureGP(X, Y, FourierMap(4), covar_module=MaternKernel()),
        "RBFKernel",
    ),
    "a text for a kernel": (lambda: FeatureGP(X, Y, NystromMap(X), covar_module="rbf"), "covar_module must be"),
    "predict at an array": (lambda: FeatureGP(X, Y, FourierMap(4)).posterior(X.numpy()), "X must be a torch tensor"),
    "nodes of a map": (lambda: FourierMap("8"), "nodes must be a whole number >= 1, got '8'"),
    "two dictionaries": (lambda: NystromMap(X, 3), "NystromMap needs one of inducing_points and size"),
    "ragged dictionary": (
        lambda: FeatureGP(X, Y, NystromMap([[0.1, 0.2], [0.3]])),
        "inducing_points must be",
    ),
    "level of a feature model": (
        lambda: TruncatedFeatureGP(X, Y, FourierMap(4), "tgp"),
        "truncation must be a schedule",
    ),
    "level of a feature model None": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), None), "truncation must be"),
    "level of a feature model below 0": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), -1.0), "truncation must be"),
    "root of a feature model": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), 1.0, root="qr"), "root must be one of"),
    "oversampling of a model": (lambda: BKBModel(X, Y, oversampling=0.0), "oversampling"),
    "size of a model": (lambda: BKBModel(X, Y, max_size=0), "max_size must be a whole number >= 1"),
    "seed as text": (lambda: BKBModel(X, Y, seed="a"), "seed must be a whole number >= 0, got 'a'"),
    "previous that is none": (lambda: BKBModel(X, Y, previous="last"), "previous must be a BKBModel"),
    "no candidates": (lambda: ensemble(U=[]), "U is empty: give at least one candidate"),
    "candidate as text": (lambda: ensemble(U=["rbf"]), "candidate"),
    "candidates as one mapping": (lambda: ensemble(U=U[0]), "candidate"),
    "setting of a candidate": (lambda: ensemble(U=[{"kernel": "rbf", "length": 0.3, "noise_var": 0.1}]), "length"),
    "ensemble of arrays": (lambda: ensemble(X.numpy(), Y.numpy()), "train_X must be a torch tensor, got ndarray"),
    "width of an ensemble": (lambda: ensemble(width=2.0), "width must be a schedule of bo_robust.confidence"),
    "widths of other candidates": (lambda: ensemble(width=(WIDTH, WIDTH)), "2 widths for 1 candidates"),
    "delta of an ensemble": (lambda: ensemble(delta=2.0), "delta (the failure probability)"),
    "kernel of a candidate": (lambda: candidate("cubic", 0.3, 0.1), "unknown kernel 'cubic'; choose one of rbf"),
    "length of a candidate": (lambda: candidate("rbf", "0.3", 0.1), "lengthscale must be"),
    "nu of a candidate": (lambda: candidate("matern", 0.3, 0.1, nu=2.0), "nu must be 0.5, 1.5 or 2.5"),
    "period of rbf": (lambda: candidate("rbf", 0.3, 0.1, period=1.0), "a period is for the kernel 'periodic'"),
    "candidate without a kernel": (lambda: Candidate("rbf", 0.1), "covar_module must be one GPyTorch kernel"),
    "range upside down": (lambda: candidate_grid((0.8, 0.1), 0.01), "(low, high) with low < high, got (0.8, 0.1)"),
    "range of three": (
        lambda: candidate_grid((0.1, 0.2, 0.3), 0.01),
        "lengthscale must be a number > 0 or (low, high)",
    ),
    "range as list": (lambda: candidate_grid([0.1, 0.8], 0.01), "lengthscale must be a finite number > 0"),
    "family that is none": (lambda: candidate_grid(0.1, 0.01, kernels=["cubic"]), "unknown family 'cubic'"),
    # conditions and functionals
    "conditions as array": (lambda: FiniteEnvironment(Z.numpy()), "environment points must be a torch tensor"),
    "conditions as list": (
        lambda: FiniteEnvironment(Z.tolist()),
        "environment points must be a torch tensor, got list",
    ),
    "conditions flat": (lambda: FiniteEnvironment(Z[:, 0]), "environment points must be w x d"),
    "conditions half": (lambda: FiniteEnvironment(Z.half()), "float32 or float64"),
    "weights as list": (
        lambda: FiniteEnvironment(Z, [0.2, 0.3, 0.5]),
        "probabilities must be a torch tensor, got list",
    ),
    "weights above 1": (lambda: FiniteEnvironment(Z, Z[:, 0] + 1.0), "probabilities must sum to 1"),
    "weights below 0": (lambda: FiniteEnvironment(Z, Z[:, 0] - 0.5), "probabilities must not be negative"),
    "weights of other points": (lambda: FiniteEnvironment(Z, Z[:2, 0]), "probabilities must be 3"),
    "box as list": (lambda: ContinuousEnvironment([[0.0], [1.0]], Normal(0.5, 0.1)), "bounds must be a torch tensor"),
    "no law": (lambda: ContinuousEnvironment(BOX), "give either a distribution (with cdf and icdf) or a sampler"),
    "a law as text": (lambda: ContinuousEnvironment(BOX, "normal"), "distribution must have cdf and icdf"),
    "a narrow law": (
        lambda: ContinuousEnvironment(BOX, Uniform(0.25, 0.75)),
        "the distribution has no value at the bounds",
    ),
    "a law for a box": (lambda: ContinuousEnvironment(Uniform(0.0, 1.0)), "bounds must be a torch tensor, got Uniform"),
    "a law elsewhere": (lambda: ContinuousEnvironment(BOX, Normal(90.0, 0.1)), "no probability within the bounds"),
    "a sampler of lists": (lambda: ContinuousEnvironment(BOX, sampler=lambda n: [0.5] * n), "the sampler must return"),
    "a sampler outside": (
        lambda: ContinuousEnvironment(BOX, sampler=lambda n: torch.full((n, 1), 2.0, dtype=torch.float64)),
        "outside the declared bounds; widen them",
    ),
    "no points": (lambda: ContinuousEnvironment(BOX, Normal(0.5, 0.1), num_points=0), "num_points must be a whole"),
    "perturbations as list": (lambda: PerturbationEnvironment([[0.1]]), "perturbations must be a torch tensor"),
    "radius of 0": (lambda: PerturbationEnvironment.ball(0.0, BOX), "radius must be a finite number > 0"),
    "alpha of 0": (lambda: functionals.ValueAtRisk(0.0), "alpha (probability of the lower tail; BoTorch's VaR takes"),
    "risk as text": (lambda: functionals.ValueAtRisk("0.1"), "alpha (probability of the lower tail"),
    "risk None": (lambda: functionals.CVaR(None), "alpha (probability of the lower tail"),
    "weight as text": (lambda: functionals.MeanVariance("1"), "weight (of the variance) must be a finite number >= 0"),
    "weight below 0": (lambda: functionals.MeanVariance(-1.0), "weight (of the variance) must be a finite number >= 0"),
    "functional as text": (lambda: functionals.as_functional("var"), "functional must be one of bo_robust.functionals"),
    "risk of a list": (lambda: functionals.ValueAtRisk(0.1)([1.0, 2.0]), "values must be a torch tensor, got list"),
    # acquisition functions
    "acquisition of text": (lambda: acquisition.GPUCB("gp", WIDTH), "model must be a BoTorch model, got 'gp'"),
    "acquisition with a number": (lambda: acquisition.GPUCB(gp(), 2.0), "width must be a schedule"),
    "acquisition with a class": (lambda: acquisition.GPUCB(gp(), ConstantWidth), "width must be a schedule"),
    "round of an acquisition": (lambda: acquisition.GPUCB(gp(), WIDTH, t=1.5), "t (the round about to be played)"),
    "pending as list": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=[[0.1, 0.2]]), "X_pending must be a torch"),
    "pending of other points": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=X[:, :1]), "X_pending"),
    "acquisition at float32": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1].float()), "X is torch.float32 on cpu"),
    "acquisition at an array": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1].numpy()), "X must be a torch tensor"),
    "acquisition at other points": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1, :1]), "X"),
    "elimination of a GP": (lambda: acquisition.EliminationUCB(gp()), "EliminationUCB needs a CandidateEnsemble"),
    "conditions of another model": (
        lambda: risk(FiniteEnvironment(X)),
        "the environment has 2 columns and the model 2",
    ),
    "conditions as a tensor": (lambda: risk(Z), "environment must be one of bo_robust.environments"),
    "conditions in float32": (lambda: risk(FiniteEnvironment(Z.float())), "the environment is torch.float32"),
    "risk of 10 per cent": (lambda: risk(functional=10), "functional must be one of bo_robust.functionals"),
    "width of risk": (lambda: risk(width="2"), "width must be a number or a schedule"),
    "risk at (x, z)": (lambda: risk()(X[:1]), "Give x alone (the bounds of x, 2 x 1, to optimize_acqf)"),
    "risk at a list": (lambda: risk().select_condition([[0.1]]), "X must be a torch tensor, got list"),
    "recommend from a list": (
        lambda: acquisition.recommend_design(gp(), FiniteEnvironment(Z), 0.1, [[0.1]]),
        "X_queried must be a torch tensor",
    ),
    "LNSO over points": (
        lambda: acquisition.optimize_lnso(risk(), BOX),
        "over a ContinuousEnvironment",
    ),
    "search over points": (lambda: acquisition.search_lacing_value(risk(), X[:, :1]), "use acqf.select_condition"),
    # tails
    "few rewards": (lambda: tails.recommend([1.0] * 9), "9 rewards are too few"),
    "rewards as text": (lambda: tails.recommend(["a"] * 200), "y must be numbers"),
    "rewards None": (lambda: tails.recommend(None), "y must be numbers, got None"),
    "rewards NaN": (lambda: tails.recommend(REWARDS * np.nan), "y has 200 NaN or infinite entries of 200"),
    "equal rewards": (lambda: tails.recommend(np.ones(200)), "more than half of the entries are equal"),
    "labels of others": (lambda: tails.recommend(REWARDS, arms=[1, 2]), "2 labels for 200 rewards"),
    "horizon as text": (lambda: tails.recommend(REWARDS, horizon="long"), "horizon must be a whole number >= 1"),
    "delta of tails": (lambda: tails.recommend(REWARDS, delta=0.0), "delta (the failure probability)"),
    "scale of f as text": (lambda: tails.recommend(REWARDS, f_scale="1"), "f_scale must be a finite number >= 0"),
    "k of 0": (lambda: tails.hill(REWARDS, 0), "k must be"),
    "k as text": (lambda: tails.hill(REWARDS, "9"), "k must be"),
    "level of tails": (lambda: tails.hill(REWARDS, level=2.0), "level (the confidence of the interval)"),
    "level of tails as text": (lambda: tails.hill(REWARDS, level="x"), "level (the confidence of the interval)"),
    "alpha of a moment": (lambda: tails.moment_bound(REWARDS, 3.0), "alpha must be in (0, 1]"),
    "blocks of a moment": (lambda: tails.moment_bound(REWARDS, 1.0, blocks=0), "blocks must be"),
    # methods and studies
    "method that is none": (lambda: create_method("tpg-ucb", {}), "did you mean 'tgp-ucb'?"),
    "setting that is none": (lambda: create_method("tgp-ucb", {"moment": 4.0}), "did you mean 'moment_bound'?"),
    "setting as text": (lambda: create_method("tgp-ucb", {"moment_bound": "4"}), "moment_bound"),
    "width of a method": (lambda: study(width={"kind": "finit"}), "did you mean 'finite'?"),
    "space as list": (lambda: study([0.0, 1.0]), "space"),
    "space without parameters": (lambda: study({}), "a space needs at least one parameter"),
    "parameter as number": (lambda: study({"x": 1.0}), "parameter 'x' must be Float, Integer or (low, high)"),
    "range of a parameter": (lambda: Float(1.0, 0.0), "Float"),
    "range as text": (lambda: Float("a", 1.0), "Float"),
    "logarithm of 0": (lambda: Float(0.0, 1.0, log=True), "log"),
    "not whole": (lambda: Integer(0.5, 3), "the bounds of an Integer must be whole numbers"),
    "box of a list": (lambda: Box([("x", 0.0, 1.0)]), "parameters"),
    "one arm": (lambda: Arms([{"x": 1.0}]), "give at least two arms"),
    "arms with other names": (lambda: Arms([{"x": 1.0}, {"y": 1.0}]), "y"),
    "arm that is no number": (lambda: Arms([{"x": 1.0}, {"x": "b"}]), "x = 'b' is not a finite number"),
    "arms as numbers": (lambda: Arms([1.0, 2.0]), "arm"),
    "method of a study": (lambda: study(method="bo"), "unknown method 'bo'"),
    "setting of a study": (lambda: study(lenghtscale=0.2), "did you mean 'lengthscale'?"),
    "kernel of a study": (lambda: study(kernel="cubic"), "kernel must be one of 'matern52', 'rbf', got 'cubic'"),
    "lengths of a study": (lambda: study(lengthscale=[0.1, 0.2]), "2 lengthscales for 1 columns"),
    "rule of a study": (lambda: study(rule="drop"), "rule must be one of zero, clip, residual; got 'drop'"),
    "reward as text of a study": (lambda: told(lambda s, t: s.tell(t.id, "good")), "value"),
    "trial that is none": (lambda: told(lambda s, t: s.tell(99, 1.0)), "99"),
    "told twice": (lambda: told(lambda s, t: (s.tell(t.id, 1.0), s.tell(t.id, 2.0))), "told"),
    "recommendation of nothing": (lambda: told(lambda s, t: s.recommend()), "no value was told yet"),
    "objective that is none": (lambda: told(lambda s, t: s.optimize("f", 3)), "objective"),
}


def test_there_are_many():
    assert len(MISTAKES) >= 120


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_one_sentence(name):
    call, words = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=re.escape(words)) as caught:
        call()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename.startswith(HOME)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= LONGEST
