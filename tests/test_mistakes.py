"""Mistakes that users make: each gets one sentence of ours that says what to change.

A row is a call and the argument that the sentence names, or other words of it where none is at fault. The error must be
a ``ValueError`` or ``TypeError`` that was raised in this package: one raised inside torch, numpy or the standard
library is a raw one, which says nothing of the argument.
"""

import re
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch.distributions import Normal, Uniform

import bo_robust
from bo_robust import acquisition, algorithms, confidence, covariance, features, functionals, tails, truncation
from bo_robust.algorithms import HEStableOpt
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
    RobustGP,
    TruncatedFeatureGP,
    TruncatedGP,
    candidate,
    candidate_grid,
    marginal_moments,
)
from bo_robust.posteriors.arms import ArmKernel
from bo_robust.posteriors.dictionary import NystromDictionary
from bo_robust.posteriors.streams import ArmStream
from bo_robust.study import Arms, Box, Categorical, Float, Integer, Study
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
BATCHED = RBFKernel(batch_shape=torch.Size([2]))
SPACE = {"x": (0.0, 1.0)}


def gp():
    return SingleTaskGP(X, Y)


def truncated(train_X=X, train_Y=Y, level=LEVEL, **options):
    return TruncatedGP(train_X, train_Y, level, **{"noise_var": 0.1} | options)


def small():
    return FeatureGP(X, Y, FourierMap(6), noise_var=0.1, covar_module=RBFKernel())


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


def saved_stream(array):
    np.save(FOLDER[0] / "arms.npy", array)
    return ArmStream.of_file(FOLDER[0] / "arms.npy")


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
    "no length": (lambda: covariance.Matern(2.5, 0.0), "lengthscale"),
    "negative length": (lambda: covariance.SquaredExponential(-1.0), "lengthscale"),
    "length as text": (lambda: covariance.SquaredExponential("0.2"), "lengthscale"),
    "lengths as list": (
        lambda: covariance.SquaredExponential([0.2, 0.3]),
        "tuple of one per dimension, got [0.2, 0.3]",
    ),
    "lengths as array": (lambda: covariance.Matern(2.5, np.array([0.2])), "tuple of one per dimension"),
    "no lengths": (lambda: covariance.Matern(2.5, ()), "tuple of one per dimension, got ()"),
    "length NaN": (lambda: covariance.Matern(2.5, float("nan")), "lengthscale"),
    "length None": (lambda: covariance.Matern(2.5, None), "lengthscale"),
    "other nu": (lambda: covariance.Matern(2.0, 0.2), "nu"),
    "nu as text": (lambda: covariance.Matern("2.5", 0.2), "nu"),
    "nu as array": (lambda: covariance.Matern(np.array([2.5, 1.5]), 0.2), "nu"),
    "no output scale": (lambda: covariance.Matern(2.5, 0.2, 0.0), "outputscale"),
    "lengths of other points": (
        lambda: ArmKernel.from_covariance(covariance.Matern(2.5, (0.2, 0.3)), ARMS),
        "2 lengthscales for points of 1 dimensions",
    ),
    "kernel that is none": (lambda: covariance.GPyTorchCovariance("rbf"), "kernel"),
    "callback that is none": (lambda: ArmKernel.from_callback(torch.eye(3), torch.ones(3)), "must be a function"),
    # kernels over arms
    "arms as array": (lambda: kernel(ARMS.numpy()), "arms"),
    "arms as list": (lambda: kernel(ARMS.tolist()), "arms"),
    "arms half": (lambda: kernel(ARMS.half()), "arms"),
    "arms whole": (lambda: kernel(torch.arange(4).unsqueeze(-1)), "arms"),
    "arms flat": (lambda: kernel(ARMS[:, 0]), "arms"),
    "no arms": (lambda: kernel(ARMS[:0]), "arms"),
    "arms NaN": (lambda: kernel(ARMS * float("nan")), "arms"),
    "covariance that is none": (lambda: ArmKernel.from_covariance(0.2, ARMS), "covariance"),
    "a GPyTorch kernel": (lambda: ArmKernel.from_covariance(RBFKernel(), ARMS), "GPyTorchCovariance(kernel)"),
    "matrix as array": (lambda: ArmKernel.from_matrix(np.eye(3)), "the kernel matrix must be a torch tensor"),
    "matrix as list": (lambda: ArmKernel.from_matrix([[1.0]]), "the kernel matrix must be a torch tensor, got list"),
    "matrix half": (lambda: ArmKernel.from_matrix(torch.eye(3).half()), "the kernel matrix must be floating point"),
    "matrix not square": (lambda: ArmKernel.from_matrix(torch.ones(2, 3)), "the kernel matrix must be n x n"),
    "matrix not symmetric": (lambda: ArmKernel.from_matrix(torch.eye(3) + torch.ones(3, 3).triu()), "not symmetric"),
    "matrix not positive": (lambda: ArmKernel.from_matrix(-torch.eye(3)), "not positive semi-definite"),
    "arms of another matrix": (lambda: ArmKernel.from_matrix(torch.eye(3), ARMS.float()), "arms"),
    # widths and levels
    "width of no arms": (lambda: FiniteWidth(0, 0.1), "num_arms"),
    "arms not whole": (lambda: FiniteWidth(2.5, 0.1), "num_arms"),
    "arms as text": (lambda: FiniteWidth("ten", 0.1), "num_arms"),
    "arms None": (lambda: FiniteWidth(None, 0.1), "num_arms"),
    "arms infinite": (lambda: FiniteWidth(float("inf"), 0.1), "num_arms"),
    "delta of 1": (lambda: FiniteWidth(5, 1.0), "delta"),
    "delta as text": (lambda: FiniteWidth(5, "0.1"), "delta"),
    "delta None": (lambda: FiniteWidth(5, None), "delta"),
    "delta as array": (lambda: FiniteWidth(5, np.array([0.1, 0.2])), "delta"),
    "width negative": (lambda: ConstantWidth(-1.0), "value"),
    "width as text": (lambda: ConstantWidth("2"), "value"),
    "width None": (lambda: ConstantWidth(None), "value"),
    "scale of 0": (lambda: ConstantWidth(1.0, scale=0.0), "scale"),
    "scale as text": (lambda: confidence.LogWidth(scale="1"), "scale"),
    "round 0": (lambda: WIDTH(0), "t is the round about to be played, counted from 1, got 0"),
    "round as text": (lambda: WIDTH("1"), "t is the round about to be played, counted from 1, got '1'"),
    "norm None": (lambda: confidence.SelfNormalisedWidth(None, 1.0, 0.1), "norm_bound"),
    "accuracy of 1": (lambda: confidence.BKBWidth(1.0, 1.0, 1.0, 0.1, 1.0), "epsilon"),
    "accuracy as text": (lambda: confidence.BKBWidth(1.0, 1.0, 1.0, 0.1, "x"), "epsilon"),
    "no draw": (lambda: confidence.RandomisedWidth(5)(1), "RandomisedWidth needs `uniform`"),
    "draw of 1": (lambda: confidence.RandomisedWidth(5)(1, 0.0, 1.0), "uniform"),
    "moment as text": (lambda: TGPTruncation("4", 1.0), "moment_bound"),
    "moment None": (lambda: TGPTruncation(None, 1.0), "moment_bound"),
    "moment of 0": (lambda: TGPTruncation(0.0, 1.0), "moment_bound"),
    "moment as array": (lambda: TGPTruncation(np.array([4.0, 1.0]), 1.0), "moment_bound"),
    "moment true": (lambda: TGPTruncation(True, 1.0), "moment_bound"),
    "alpha of 2": (lambda: TGPTruncation(4.0, 2.0), "alpha"),
    "alpha as text": (lambda: TGPTruncation(4.0, "1"), "alpha"),
    "alpha NaN": (lambda: TGPTruncation(4.0, float("nan")), "alpha"),
    "horizon of 0": (lambda: truncation.ATAFourierTruncation(4.0, 1.0, 0.1, 0, 5), "horizon"),
    "horizon NaN": (lambda: truncation.ATAFourierTruncation(4.0, 1.0, 0.1, float("nan"), 5), "horizon"),
    "level of round 0": (lambda: LEVEL(0), "t is the round about to be played, counted from 1, got 0"),
    "unknown rule": (lambda: truncation.truncate(Y, 1.0, "drop"), "rule"),
    "rule of a mean without it": (
        lambda: truncation.truncate(Y, 1.0, "residual"),
        "rule 'residual' needs the posterior",
    ),
    "rewards as list": (lambda: truncation.truncate([1.0, 2.0], 1.0), "y"),
    "gain of no noise": (lambda: gains.exact(torch.eye(3), 0.0), "noise_var"),
    "gain of an array": (lambda: gains.exact(np.eye(3), 1.0), "K"),
    "bound of a list": (lambda: confidence.gp_ucb_regret_bound([1.0], torch.ones(1), 1.0), "widths"),
    # features
    "no nodes": (lambda: features.FourierFeatures(0.2, 0, ((0.0, 1.0),)), "nodes"),
    "nodes as text": (lambda: features.FourierFeatures(0.2, "8", ((0.0, 1.0),)), "nodes"),
    "box upside down": (lambda: features.FourierFeatures(0.2, 8, ((1.0, 0.0),)), "bounds"),
    "box as text": (lambda: features.FourierFeatures(0.2, 8, "unit"), "bounds"),
    "features of an array": (lambda: features.FourierFeatures(0.2, 8, ((0.0, 1.0),))(ARMS.numpy()), "X"),
    "features outside": (lambda: features.FourierFeatures(0.2, 8, ((0.0, 1.0),))(ARMS + 5.0), "widen `bounds`"),
    "too many frequencies": (lambda: features.FourierFeatures(0.2, 100, ((0.0, 1.0),) * 8), "nodes"),
    "error of 2": (lambda: features.fewest_nodes(0.2, ((0.0, 1.0),), 2.0), "error"),
    "oversampling of 0": (lambda: NystromDictionary(0.0), "oversampling"),
    "redraw_growth below 1": (lambda: NystromDictionary(5.0, 0.5), "redraw_growth"),
    "redraw_growth as text": (lambda: NystromDictionary(5.0, "1"), "redraw_growth"),
    "stream of an array": (lambda: ArmStream.of_tensor(ARMS.numpy()), "arms"),
    "stream of no arms": (lambda: ArmStream.of_tensor(ARMS[:0]), "arms must be n x d with n >= 1"),
    "stream of whole numbers": (lambda: saved_stream(np.arange(6).reshape(3, 2)), "n x d array of float32 or float64"),
    "block of whole numbers": (
        lambda: list(ArmStream(lambda a, b: ARMS[a:b].long(), 0, 6).blocks(ARMS)),
        "the block of arms 0..5 must be float32 or float64, got torch.int64; convert it",
    ),
    "stop before start": (lambda: ArmStream(lambda a, b: ARMS, 3, 2), "stop"),
    # algorithms over arms
    "width as number": (lambda: algorithms.GPUCB(2.0), "width"),
    "width as class": (lambda: algorithms.GPUCB(ConstantWidth), "width"),
    "level as number": (lambda: algorithms.TGPUCB(WIDTH, 3.0), "truncation"),
    "rule of TGP": (lambda: algorithms.TGPUCB(WIDTH, LEVEL, "drop"), "rule"),
    "root of ATA": (lambda: algorithms.ATAGPUCB(WIDTH, LEVEL, NystromDictionary(5.0), "qr"), "root"),
    "features of ATA": (lambda: algorithms.ATAGPUCB(WIDTH, LEVEL, 16), "features"),
    "groups even": (
        lambda: state(algorithms.MoMGPUCB(WIDTH, features.FourierFeatures(0.2, 8, ((0.0, 1.0),)), 4)),
        "groups",
    ),
    "oversampling of BKB": (lambda: algorithms.BKB(WIDTH, 0.5), "oversampling"),
    "oversampling of BKB in a study": (
        lambda: create_method("bkb", {"oversampling": 0.0}),
        "a finite number >= 1, got",
    ),
    "range of a base class": (lambda: confidence.RandomisedWidth(num_arms=0), "num_arms"),
    "published horizon": (lambda: truncation.PublishedATATruncation(1.0, 1.0, horizon=0, num_directions=8), "horizon"),
    "oversampling as text": (lambda: algorithms.BKB(WIDTH, "5"), "oversampling"),
    "redraw of BKB": (lambda: algorithms.BKB(WIDTH, 5.0, "never"), "redraw"),
    "batch of mini": (lambda: algorithms.MiniGPUCB(WIDTH, 0.5), "batch_constant"),
    "batch of mini as text": (lambda: algorithms.MiniGPUCB(WIDTH, "1.1"), "batch_constant"),
    "batch of BBKB": (lambda: algorithms.BBKB(WIDTH, 5.0, -1.0), "batch_constant"),
    "oversampling of StreamedBBKB": (lambda: algorithms.StreamedBBKB(WIDTH, 0.0, 1.0), "oversampling"),
    "batch of StreamedBBKB": (lambda: algorithms.StreamedBBKB(WIDTH, 5.0, -1.0), "batch_constant"),
    "lengths of A-GP-UCB": (lambda: algorithms.AGPUCB(WIDTH, ()), "lengthscales"),
    "one length of A-GP-UCB": (lambda: algorithms.AGPUCB(WIDTH, 0.2), "lengthscales"),
    "noise of HE": (lambda: algorithms.HEGPUCB(WIDTH, 0.0, 0.1), "noise_scale"),
    "base of HE": (lambda: algorithms.HEGPUCB(WIDTH, 1.0, 0.1, base="tgp-ucb"), "base"),
    "conditions of V-UCB": (lambda: algorithms.VUCB(WIDTH, 0.1, 0), "num_conditions"),
    "conditions of StableOpt": (lambda: algorithms.StableOpt(WIDTH, 0), "num_conditions"),
    "conditions of HE-StableOpt": (lambda: HEStableOpt(WIDTH, 0.1, 0.1, 0), "num_conditions"),
    "noise of HE-StableOpt": (lambda: HEStableOpt(WIDTH, 0.0, 0.1, 4), "noise_scale"),
    "alpha of V-UCB": (lambda: algorithms.VUCB(WIDTH, 10, 2), "functional"),
    "probabilities of V-UCB": (lambda: algorithms.VUCB(WIDTH, 0.1, 2, (0.5, 0.6)), "probabilities"),
    "probabilities as text": (lambda: algorithms.VUCB(WIDTH, 0.1, 2, "ab"), "probabilities"),
    "pairs that do not fit": (lambda: state(algorithms.VUCB(WIDTH, 0.1, 4)), "are not pairs of designs with 4"),
    "pairs that do not fit HE-StableOpt": (
        lambda: state(HEStableOpt(WIDTH, 0.1, 0.1, 4)),
        "not pairs of designs with 4",
    ),
    "margin of 0": (lambda: algorithms.ProbabilityOfImprovement(0.0), "margin"),
    "no noise": (lambda: state(noise_var=0.0), "noise_var"),
    "noise NaN": (lambda: state(noise_var=float("nan")), "noise_var"),
    "noise as text": (lambda: state(noise_var="0.1"), "noise_var"),
    "noise None": (lambda: state(noise_var=None), "noise_var"),
    "noise of other trials": (lambda: state(noise_var=torch.ones(3), trials=2), "one number or one per trial (2)"),
    "noise of candidates in a table": (
        lambda: algorithms.HEGPUCB(WIDTH, 0.1, 0.1).init(kernel(), torch.ones(2, 2)),
        "noise_var must be one number or one per candidate",
    ),
    "noise below rounding": (lambda: algorithms.GPUCB(WIDTH).init(kernel(ARMS.float()), 1e-9), "noise_var"),
    "no trials": (lambda: state(trials=0), "trials"),
    "trials as text": (lambda: state(trials="2"), "trials"),
    "prior mean as list": (lambda: state(prior_mean=[0.0] * 6), "prior_mean"),
    "prior mean of other arms": (lambda: state(prior_mean=ARMS[:3, 0]), "prior_mean"),
    "a matrix for a kernel": (lambda: algorithms.GPUCB(WIDTH).init(torch.eye(3), 0.1), "kernel"),
    "reward of one trial": (lambda: observe(torch.zeros(2).long(), torch.ones(1).double()), "one entry per trial (2)"),
    "arm of one trial": (lambda: observe(torch.zeros(1).long(), torch.ones(2).double()), "one entry per trial (2)"),
    "reward as number": (lambda: observe(torch.zeros(2).long(), 1.0), "rewards"),
    "arm as number": (lambda: observe(0, torch.ones(2).double()), "arms"),
    "arm as float": (lambda: observe(torch.zeros(2), torch.ones(2).double()), "arms"),
    "arm that is none": (lambda: observe(torch.tensor([0, 9]), torch.ones(2).double()), "arms"),
    "rewards in float32": (lambda: observe(torch.zeros(2).long(), torch.ones(2)), "rewards is torch.float32"),
    "no draw for BKB": (
        lambda: observe(torch.zeros(2).long(), torch.ones(2).double(), algorithms.BKB(WIDTH, 5.0)),
        "observe needs `uniform`",
    ),
    # models
    "X as array": (lambda: truncated(X.numpy()), "train_X"),
    "Y as array": (lambda: truncated(X, Y.numpy()), "train_Y"),
    "X as list": (lambda: truncated(X.tolist()), "train_X"),
    "Y flat": (lambda: truncated(X, Y[:, 0]), "TruncatedGP needs train_X batch_shape x n x d and train_Y"),
    "Y of other rows": (lambda: truncated(X, Y[:3]), "train_X has 4 rows, train_Y 3: give one reward for each point"),
    "Y of other rows, robust": (lambda: RobustGP(X, Y[:3]), "train_X has 4 rows, train_Y 3"),
    "Y in a batch, robust": (lambda: RobustGP(X, Y.unsqueeze(0)), "make one model for each data set of a batch"),
    "no rows": (lambda: truncated(X[:0], Y[:0]), "there are no data"),
    "batch of X alone": (lambda: truncated(X.expand(2, 4, 2), Y), "give both the same batch shape"),
    "two outputs": (lambda: truncated(X, Y.expand(4, 2)), "model several outputs with a ModelListGP"),
    "Y NaN": (lambda: truncated(X, Y * float("nan")), "train_Y"),
    "X half": (lambda: truncated(X.half(), Y.half()), "train_X"),
    "X whole": (lambda: truncated(X.long(), Y), "train_X"),
    "X and Y of two dtypes": (lambda: truncated(X, Y.float()), "train_Y"),
    "level as a plain number": (lambda: truncated(level=3.0), "truncation"),
    "level as class": (lambda: truncated(level=NoTruncation), "truncation"),
    "level as text": (lambda: truncated(level="tgp"), "truncation"),
    "levels of other rows": (lambda: truncated(level=Y[:2] + 1.0), "truncation levels must be 4 x 1"),
    "levels of 0": (lambda: truncated(level=Y * 0.0), "truncation levels must be > 0"),
    "noise too small": (lambda: truncated(noise_var=1e-9), "noise_var"),
    "model noise as text": (lambda: truncated(noise_var="0.1"), "noise_var"),
    "noise twice": (lambda: truncated(train_Yvar=Y + 1.0), "give one of noise_var"),
    "rule of a model": (lambda: truncated(rule="residual"), "TruncatedGP has the rules 'zero' and 'clip'"),
    "new rewards as list": (lambda: truncated().condition_on_observations(X[:1], [[1.0]]), "Y"),
    "new points as array": (lambda: truncated().condition_on_observations(X[:1].numpy(), Y[:1]), "X"),
    "new targets as list": (lambda: truncated().set_train_data(targets=[1.0] * 4), "targets"),
    "verify a text": (lambda: bo_robust.verify("abc"), "verify takes a model, such as a fitted RobustGP, got 'abc'"),
    "verify data": (lambda: bo_robust.verify(X, Y), "verify takes a model"),
    "verify by rewards": (lambda: bo_robust.verify(gp(), Y), "maximize must be True, False or None"),
    "features as text": (lambda: FeatureGP(X, Y, "fourier"), "features"),
    "features of X as array": (lambda: FeatureGP(X.numpy(), Y, FourierMap(4)), "train_X"),
    "points outside the box": (lambda: FeatureGP(X + 5.0, Y, FourierMap(4)), "bounds"),
    "box of other points": (lambda: FeatureGP(X, Y, FourierMap(4, [[0.0], [1.0]])), "bounds"),
    "box of words": (lambda: FeatureGP(X, Y, FourierMap(4, "unit")), "bounds"),
    "kernel of another family": (lambda: FeatureGP(X, Y, FourierMap(4), covar_module=MaternKernel()), "RBFKernel"),
    "a text for a kernel": (lambda: FeatureGP(X, Y, NystromMap(X), covar_module="rbf"), "covar_module"),
    "predict at an array": (lambda: FeatureGP(X, Y, FourierMap(4)).posterior(X.numpy()), "X"),
    "nodes of a map": (lambda: FourierMap("8"), "nodes"),
    "two dictionaries": (lambda: NystromMap(X, 3), "NystromMap needs one of inducing_points and size"),
    "ragged dictionary": (lambda: FeatureGP(X, Y, NystromMap([[0.1, 0.2], [0.3]])), "inducing_points"),
    "level of a feature model": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), "tgp"), "truncation"),
    "level of a feature model None": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), None), "truncation"),
    "level of a feature model below 0": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), -1.0), "truncation"),
    "root of a feature model": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), 1.0, root="qr"), "root"),
    "oversampling of a model": (lambda: BKBModel(X, Y, oversampling=0.0), "oversampling"),
    "size of a model": (lambda: BKBModel(X, Y, max_size=0), "max_size"),
    "seed as text": (lambda: BKBModel(X, Y, seed="a"), "seed"),
    "previous that is none": (lambda: BKBModel(X, Y, previous="last"), "previous"),
    "no candidates": (lambda: ensemble(U=[]), "U is empty: give at least one candidate"),
    "candidate as text": (lambda: ensemble(U=["rbf"]), "candidates"),
    "candidates as one mapping": (lambda: ensemble(U=U[0]), "candidates"),
    "setting of a candidate": (lambda: ensemble(U=[{"kernel": "rbf", "length": 0.3, "noise_var": 0.1}]), "length"),
    "ensemble of arrays": (lambda: ensemble(X.numpy(), Y.numpy()), "train_X"),
    "width of an ensemble": (lambda: ensemble(width=2.0), "width"),
    "widths of other candidates": (lambda: ensemble(width=(WIDTH, WIDTH)), "2 widths for 1 candidates"),
    "delta of an ensemble": (lambda: ensemble(delta=2.0), "delta"),
    "kernel of a candidate": (lambda: candidate("cubic", 0.3, 0.1), "unknown kernel 'cubic'; choose one of rbf"),
    "length of a candidate": (lambda: candidate("rbf", "0.3", 0.1), "lengthscale"),
    "nu of a candidate": (lambda: candidate("matern", 0.3, 0.1, nu=2.0), "nu"),
    "period of rbf": (lambda: candidate("rbf", 0.3, 0.1, period=1.0), "a period is for the kernel 'periodic'"),
    "candidate without a kernel": (lambda: Candidate("rbf", 0.1), "covar_module"),
    "range upside down": (lambda: candidate_grid((0.8, 0.1), 0.01), "(low, high) with low < high, got (0.8, 0.1)"),
    "range of three": (lambda: candidate_grid((0.1, 0.2, 0.3), 0.01), "lengthscale"),
    "range as list": (lambda: candidate_grid([0.1, 0.8], 0.01), "lengthscale"),
    "family that is none": (lambda: candidate_grid(0.1, 0.01, kernels=["cubic"]), "unknown family 'cubic'"),
    # what a model is told, each class in its own words
    "noise of an ensemble": (lambda: ensemble(noise_scale=0.0), "noise_scale"),
    "initial of an ensemble": (lambda: ensemble(num_initial=-1), "num_initial"),
    "random width of an ensemble": (lambda: ensemble(width=confidence.RandomisedWidth(9)), "width"),
    "elimination of an ensemble": (lambda: ensemble(elimination="mle"), "elimination"),
    "reward NaN to an ensemble": (lambda: ensemble().observe(X[0], float("nan")), "y"),
    "point infinite to an ensemble": (lambda: ensemble().observe(X[0] * float("inf"), 1.0), "X"),
    "two points to an ensemble": (lambda: ensemble().observe(X[:2], 1.0), "observe takes one point"),
    "two rewards to an ensemble": (lambda: ensemble().observe(X[0], Y), "y must be one finite number"),
    "float32 to an ensemble": (lambda: ensemble().observe(X[0].float(), Y[0]), "X"),
    "other columns to an ensemble": (lambda: ensemble().observe(X[0, :1], 1.0), "X"),
    "noise to an ensemble": (lambda: ensemble().condition_on_observations(X, Y, noise=Y), "noise_var"),
    "pending flat to an ensemble": (lambda: ensemble().hallucinate(X[0]), "X_pending"),
    "rewards after pending": (lambda: ensemble().hallucinate(X).observe(X[0], 1.0), "hallucinated points"),
    "kernel batched of a candidate": (lambda: Candidate(BATCHED, 0.1), "covar_module"),
    "low oversampling of a model": (lambda: BKBModel(X, Y, oversampling=0.99), "oversampling"),
    "oversampling infinite": (lambda: BKBModel(X, Y, oversampling=float("inf")), "oversampling"),
    "least size of a model": (lambda: BKBModel(X, Y, min_size=0), "min_size"),
    "seed of a model": (lambda: BKBModel(X, Y, seed=-1), "seed"),
    "seed of a draw": (lambda: BKBModel(X, Y).redraw(-1), "seed"),
    "noise of BKB": (lambda: BKBModel(X, Y, noise_var=-1.0), "noise_var"),
    "no data of BKB": (lambda: BKBModel(X[:0], Y[:0]), "n >= 1"),
    "previous of another class": (lambda: BKBModel(X, Y, previous=FeatureGP(X, Y, NystromMap(X))), "previous"),
    "previous of other columns": (lambda: BKBModel(X, Y, previous=BKBModel(X[:, :1], Y)), "X"),
    "previous in float32": (lambda: BKBModel(X, Y, previous=BKBModel(X, Y).float()), "train_X"),
    "pending of other columns": (lambda: BKBModel(X, Y).with_pending(X[:, :1]), "X"),
    "batched kernel of BKB": (lambda: BKBModel(X, Y, covar_module=BATCHED), "batch shape"),
    "batched kernel of features": (lambda: FeatureGP(X, Y, FourierMap(4), covar_module=BATCHED), "batch shape"),
    "features as number": (lambda: FeatureGP(X, Y, 4), "features"),
    "no noise of features": (lambda: FeatureGP(X, Y, FourierMap(4), noise_var=0.0), "noise_var"),
    "little noise of features": (lambda: FeatureGP(X, Y, FourierMap(4), noise_var=9e-7), "noise_var"),
    "noise twice of features": (
        lambda: FeatureGP(X, Y, FourierMap(4), noise_var=0.1, likelihood=GaussianLikelihood()),
        "noise_var",
    ),
    "noise of each row of features": (
        lambda: FeatureGP(X, Y, FourierMap(4), likelihood=FixedNoiseGaussianLikelihood(torch.ones(4))),
        "one noise variance",
    ),
    "no data of features": (lambda: FeatureGP(X[:0], Y[:0], FourierMap(4)), "n >= 1"),
    "batches of features": (lambda: FeatureGP(X.expand(2, 4, 2), Y.expand(2, 4, 1), FourierMap(4)), "train_X"),
    "predict outside the box": (lambda: small().posterior(X + 1.0), "box"),
    "predict at other columns": (lambda: small().posterior(X[:, :1]), "X"),
    "predict at a point": (lambda: small().posterior(X[0]), "X"),
    "predict in float32": (lambda: small().posterior(X.float()), "X"),
    "learn outside the box": (lambda: small().condition_on_observations(X + 1.0, Y), "box"),
    "learn with noise": (lambda: small().condition_on_observations(X, Y, noise=Y), "noise"),
    "set other targets": (lambda: small().set_train_data(targets=Y[:2, 0]), "targets"),
    "transform of rewards of truncated": (lambda: truncated(outcome_transform=Standardize(m=1)), "outcome_transform"),
    "transform of rewards of truncated features": (
        lambda: TruncatedFeatureGP(X, Y, FourierMap(4), 1.0, outcome_transform=Standardize(m=1)),
        "outcome_transform",
    ),
    "no noise of truncated": (lambda: truncated(noise_var=0.0), "noise_var"),
    "little noise of float32": (lambda: truncated(X.float(), Y.float(), noise_var=9e-5), "noise_var"),
    "noise and likelihood": (lambda: truncated(likelihood=GaussianLikelihood()), "noise_var"),
    "levels flat": (lambda: truncated(level=torch.ones(4, dtype=torch.float64)), "levels"),
    "levels in float32": (lambda: truncated(level=torch.ones(4, 1)), "levels"),
    "levels NaN": (lambda: truncated(level=Y * float("nan")), "levels"),
    "no data of truncated": (lambda: truncated(X[:0], Y[:0]), "n >= 1"),
    "rule of truncated features": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), 1.0, rule="drop"), "rule"),
    "level of 0 of features": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), 0.0), "truncation"),
    "level NaN of features": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), float("nan")), "truncation"),
    "schedule of 0 of features": (lambda: TruncatedFeatureGP(X, Y, FourierMap(4), lambda t: 0.0).posterior(X), "> 0"),
    "families as text": (lambda: candidate_grid(0.1, 0.01, kernels="rbf"), "family"),
    "no families": (lambda: candidate_grid(0.1, 0.01, kernels=()), "family"),
    "family without a kernel": (lambda: candidate_grid(0.1, 0.01, kernels=[{"period": 1.0}]), "kernel"),
    "no grid points": (lambda: candidate_grid((0.1, 0.4), 0.01, num=0), "num"),
    "noise range from 0": (lambda: candidate_grid(0.1, (0.0, 1.0)), "noise_var"),
    "no period": (lambda: candidate("periodic", 0.1, 0.1), "period"),
    "period below 0": (lambda: candidate("periodic", 0.1, 0.1, period=-1.0), "period"),
    "no output scale of a candidate": (lambda: candidate("rbf", 0.1, 0.1, outputscale=0.0), "outputscale"),
    "lengths of groups": (lambda: candidate("rbf", [0.1, 0.2], 0.1, groups=[[0], [1]]), "lengthscale"),
    "no noise of a candidate": (lambda: candidate("rbf", 0.1, noise_var=0.0), "noise_var"),
    # conditions and functionals
    "conditions as array": (lambda: FiniteEnvironment(Z.numpy()), "points must be a torch tensor"),
    "conditions as list": (
        lambda: FiniteEnvironment(Z.tolist()),
        "points must be a torch tensor, got list",
    ),
    "conditions flat": (lambda: FiniteEnvironment(Z[:, 0]), "points must be w x d"),
    "conditions half": (lambda: FiniteEnvironment(Z.half()), "float32 or float64"),
    "weights as list": (lambda: FiniteEnvironment(Z, [0.2, 0.3, 0.5]), "probabilities"),
    "weights above 1": (lambda: FiniteEnvironment(Z, Z[:, 0] + 1.0), "probabilities"),
    "weights below 0": (lambda: FiniteEnvironment(Z, Z[:, 0] - 0.5), "probabilities"),
    "weights of other points": (lambda: FiniteEnvironment(Z, Z[:2, 0]), "probabilities"),
    "no conditions": (lambda: FiniteEnvironment(Z[:0]), "points"),
    "whole conditions": (lambda: FiniteEnvironment(Z.long()), "points"),
    "conditions NaN": (lambda: FiniteEnvironment(Z * float("nan")), "points"),
    "weights NaN": (lambda: FiniteEnvironment(Z, Z[:, 0] * float("nan")), "probabilities"),
    "weights in float32": (lambda: FiniteEnvironment(Z, Z[:, 0].float()), "probabilities"),
    "no weights": (lambda: FiniteEnvironment(Z, Z[:0, 0]), "probabilities"),
    "perturbations flat": (lambda: PerturbationEnvironment(Z[:, 0]), "perturbations"),
    "perturbations NaN": (lambda: PerturbationEnvironment(Z * float("nan")), "perturbations"),
    "weights of perturbations": (lambda: PerturbationEnvironment(Z, Z[:, 0] - 0.5), "probabilities"),
    "box of a point": (lambda: ContinuousEnvironment(BOX * 0.0, Normal(0.0, 1.0)), "bounds"),
    "box of three": (lambda: ContinuousEnvironment(Z, Normal(0.0, 1.0)), "bounds"),
    "box infinite": (lambda: ContinuousEnvironment(BOX / 0.0, Normal(0.0, 1.0)), "bounds"),
    "alpha of 1": (lambda: functionals.CVaR(1.0), "alpha"),
    "alpha NaN of a risk": (lambda: functionals.ValueAtRisk(float("nan")), "alpha"),
    "box as list": (lambda: ContinuousEnvironment([[0.0], [1.0]], Normal(0.5, 0.1)), "bounds"),
    "no law": (lambda: ContinuousEnvironment(BOX), "give either a distribution (with cdf and icdf) or a sampler"),
    "a law as text": (lambda: ContinuousEnvironment(BOX, "normal"), "distribution"),
    "a narrow law": (
        lambda: ContinuousEnvironment(BOX, Uniform(0.25, 0.75)),
        "the distribution has no value at the bounds",
    ),
    "a law for a box": (lambda: ContinuousEnvironment(Uniform(0.0, 1.0)), "bounds"),
    "a law elsewhere": (lambda: ContinuousEnvironment(BOX, Normal(90.0, 0.1)), "no probability within the bounds"),
    "a sampler of lists": (lambda: ContinuousEnvironment(BOX, sampler=lambda n: [0.5] * n), "the sampler must return"),
    "a sampler outside": (
        lambda: ContinuousEnvironment(BOX, sampler=lambda n: torch.full((n, 1), 2.0, dtype=torch.float64)),
        "outside the declared bounds; widen them",
    ),
    "no points": (lambda: ContinuousEnvironment(BOX, Normal(0.5, 0.1), num_points=0), "num_points"),
    "perturbations as list": (lambda: PerturbationEnvironment([[0.1]]), "perturbations"),
    "perturbations of other designs": (
        lambda: PerturbationEnvironment(Z).points(X),
        "perturbations have 1 columns, X has 2",
    ),
    "radius of 0": (lambda: PerturbationEnvironment.ball(0.0, BOX), "radius"),
    "alpha of 0": (lambda: functionals.ValueAtRisk(0.0), "alpha"),
    "risk as text": (lambda: functionals.ValueAtRisk("0.1"), "alpha"),
    "risk None": (lambda: functionals.CVaR(None), "alpha"),
    "weight as text": (lambda: functionals.MeanVariance("1"), "weight"),
    "weight below 0": (lambda: functionals.MeanVariance(-1.0), "weight"),
    "functional as text": (lambda: functionals.as_functional("var"), "functional"),
    "risk of a list": (lambda: functionals.ValueAtRisk(0.1)([1.0, 2.0]), "values"),
    # acquisition functions
    "acquisition of text": (lambda: acquisition.GPUCB("gp", WIDTH), "model"),
    "acquisition with a number": (lambda: acquisition.GPUCB(gp(), 2.0), "width"),
    "acquisition with a class": (lambda: acquisition.GPUCB(gp(), ConstantWidth), "width"),
    "round of an acquisition": (lambda: acquisition.GPUCB(gp(), WIDTH, t=1.5), "t"),
    "pending as list": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=[[0.1, 0.2]]), "X_pending"),
    "pending of other points": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=X[:, :1]), "X_pending"),
    "acquisition at float32": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1].float()), "X"),
    "acquisition at an array": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1].numpy()), "X"),
    "acquisition at other points": (lambda: acquisition.GPUCB(gp(), WIDTH)(X[:1, :1]), "X"),
    "outputs of an ensemble": (
        lambda: marginal_moments(
            ensemble(), X, posterior_transform=ScalarizedPosteriorTransform(torch.ones(1, dtype=torch.float64))
        ),
        "a CandidateEnsemble takes no posterior_transform",
    ),
    "an output that an ensemble lacks": (
        lambda: ensemble().subset_output([1]),
        "the model has one output, got indices",
    ),
    "elimination of a GP": (lambda: acquisition.EliminationUCB(gp()), "EliminationUCB needs a CandidateEnsemble"),
    "conditions of another model": (
        lambda: risk(FiniteEnvironment(X)),
        "the environment has 2 columns and the model 2",
    ),
    "conditions as a tensor": (lambda: risk(Z), "environment"),
    "conditions in float32": (lambda: risk(FiniteEnvironment(Z.float())), "the environment is torch.float32"),
    "risk of 10 per cent": (lambda: risk(functional=10), "functional"),
    "pending designs of a batch of models": (
        lambda: acquisition.ValueAtRiskUCB(
            SingleTaskGP(X.expand(2, 4, 2), Y.expand(2, 4, 1)), FiniteEnvironment(Z), 0.1, 2.0, X_pending=X[:1, :1]
        ),
        "pending designs need a model without batch shape",
    ),
    "width of risk": (lambda: risk(width="2"), "width"),
    "risk at (x, z)": (lambda: risk()(X[:1]), "Give x alone (the bounds of x, 2 x 1, to optimize_acqf)"),
    "risk at a list": (lambda: risk().select_condition([[0.1]]), "X"),
    "recommend from a list": (
        lambda: acquisition.recommend_design(gp(), FiniteEnvironment(Z), 0.1, [[0.1]]),
        "X_queried",
    ),
    "LNSO over points": (lambda: acquisition.optimize_lnso(risk(), BOX), "over a ContinuousEnvironment"),
    "search over points": (lambda: acquisition.search_lacing_value(risk(), X[:, :1]), "use acqf.select_condition"),
    # tails
    "few rewards": (lambda: tails.choose_constants([1.0] * 9), "9 rewards are too few"),
    "rewards as text": (lambda: tails.choose_constants(["a"] * 200), "y"),
    "rewards None": (lambda: tails.choose_constants(None), "y"),
    "rewards NaN": (lambda: tails.choose_constants(REWARDS * np.nan), "y"),
    "equal rewards": (lambda: tails.choose_constants(np.ones(200)), "more than half of the entries are equal"),
    "labels of others": (lambda: tails.choose_constants(REWARDS, arms=[1, 2]), "2 labels for 200 rewards"),
    "horizon as text": (lambda: tails.choose_constants(REWARDS, horizon="long"), "horizon"),
    "delta of tails": (lambda: tails.choose_constants(REWARDS, delta=0.0), "delta"),
    "scale of f as text": (lambda: tails.choose_constants(REWARDS, f_scale="1"), "f_scale"),
    "k of 0": (lambda: tails.hill(REWARDS, 0), "k"),
    "k as text": (lambda: tails.hill(REWARDS, "9"), "k"),
    "confidence of tails": (lambda: tails.hill(REWARDS, confidence=2.0), "confidence"),
    "confidence of tails as text": (lambda: tails.hill(REWARDS, confidence="x"), "confidence"),
    "alpha of a moment": (lambda: tails.moment_bound(REWARDS, 3.0), "alpha"),
    "blocks of a moment": (lambda: tails.moment_bound(REWARDS, 1.0, blocks=0), "blocks"),
    # methods and studies
    "method that is none": (lambda: create_method("tpg-ucb", {}), "did you mean 'tgp-ucb'?"),
    "method by its class": (lambda: study(method="TGPUCB"), "did you mean 'tgp-ucb'?"),
    "method like no other": (lambda: study(method="zzz"), "unknown method 'zzz'; choose one of: ata-gp-ucb"),
    "setting that is none": (lambda: create_method("tgp-ucb", {"moment": 4.0}), "did you mean 'moment_bound'?"),
    "setting as text": (lambda: create_method("tgp-ucb", {"moment_bound": "4"}), "moment_bound"),
    "width of a method": (lambda: study(width={"kind": "finit"}), "did you mean 'finite'?"),
    "space as list": (lambda: study([0.0, 1.0]), "space"),
    "space without parameters": (lambda: study({}), "a space needs at least one parameter"),
    "parameter as number": (lambda: study({"x": 1.0}), "parameter 'x'"),
    "choices without Categorical": (lambda: study({"x": ["a", "b"]}), "write Categorical(['a', 'b']"),
    "choices one by one": (lambda: Categorical("a", "b"), "write Categorical(['a', 'b']"),
    "range of a parameter": (lambda: Float(1.0, 0.0), "Float"),
    "range as text": (lambda: Float("a", 1.0), "Float"),
    "logarithm of 0": (lambda: Float(0.0, 1.0, log=True), "log"),
    "not whole": (lambda: Integer(0.5, 3), "Integer"),
    "parameter without a name": (lambda: Box({"": Float(0.0, 1.0)}), "parameters have names, got ''"),
    "box of a list": (lambda: Box([("x", 0.0, 1.0)]), "parameters"),
    "one arm": (lambda: Arms([{"x": 1.0}]), "give at least two arms"),
    "arms with other names": (lambda: Arms([{"x": 1.0}, {"y": 1.0}]), "y"),
    "arm that is no number": (lambda: Arms([{"x": 1.0}, {"x": "b"}]), "x = 'b' is not a finite number"),
    "arms as numbers": (lambda: Arms([1.0, 2.0]), "arms"),
    "method of a study": (lambda: study(method="bo"), "unknown method 'bo'"),
    "setting of a study": (lambda: study(lenghtscale=0.2), "did you mean 'lengthscale'?"),
    "kernel of a study": (lambda: study(kernel="cubic"), "kernel"),
    "lengths of a study": (lambda: study(lengthscale=[0.1, 0.2]), "2 lengthscales for 1 columns"),
    "rule of a study": (lambda: study(rule="drop"), "rule"),
    "reward as text of a study": (lambda: told(lambda s, t: s.tell(t.id, "good")), "value"),
    "trial that is none": (lambda: told(lambda s, t: s.tell(99, 1.0)), "99"),
    "told twice": (lambda: told(lambda s, t: (s.tell(t.id, 1.0), s.tell(t.id, 2.0))), "told"),
    "recommendation of nothing": (lambda: told(lambda s, t: s.recommend()), "no value was told yet"),
    "objective that is none": (lambda: told(lambda s, t: s.optimize("f", 3)), "objective"),
    # acquisition functions, where the contract has not the words
    "round 0 of an acquisition": (lambda: acquisition.GPUCB(gp(), WIDTH, t=0), "t"),
    "round as tensor": (lambda: acquisition.GPUCB(gp(), WIDTH, t=torch.tensor(3)), "t"),
    "acquisition without data": (
        lambda: acquisition.GPUCB(GenericDeterministicModel(lambda x: x.sum(-1, keepdim=True)), WIDTH, t=1),
        "training data",
    ),
    "acquisition of an ensemble": (lambda: acquisition.GPUCB(ensemble(), WIDTH), "ensemble"),
    "pending NaN": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=X * float("nan")), "X_pending"),
    "pending flat": (lambda: acquisition.GPUCB(gp(), WIDTH, X_pending=X[0]), "X_pending"),
    "elimination at other columns": (lambda: acquisition.EliminationUCB(ensemble())(X[:1, :1]), "X"),
    "two weights for elimination": (
        lambda: acquisition.EliminationUCB(ensemble(), ScalarizedPosteriorTransform(torch.ones(2))),
        "posterior_transform",
    ),
    "sense of elimination": (
        lambda: acquisition.EliminationUCB(ensemble(), ScalarizedPosteriorTransform(-torch.ones(1))),
        "maximize",
    ),
    "perturbations of other columns": (lambda: risk(PerturbationEnvironment(Z)), "columns"),
    "only conditions": (lambda: risk(FiniteEnvironment(X)), "column of x"),
    "width below 0 of risk": (lambda: risk(width=-1.0), "value"),
    "round of risk": (lambda: risk(t=1.5), "t"),
    "pick that is none": (lambda: risk().select_condition(X[:, :1], "best"), "pick"),
    "pending designs flat": (lambda: risk(X_pending=X[0]), "X_pending"),
    "risk at other columns": (lambda: risk()(torch.cat([X, X], 1)), "X"),
    "designs of other columns": (lambda: acquisition.recommend_design(gp(), FiniteEnvironment(Z), 0.1, X), "z"),
    "no designs": (lambda: acquisition.recommend_design(gp(), FiniteEnvironment(Z), 0.1, X[:0]), "X_queried"),
    "whole designs": (lambda: acquisition.recommend_design(gp(), FiniteEnvironment(Z), 0.1, X.long()), "X_queried"),
}


def test_there_are_many():
    assert len(MISTAKES) >= 120


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_one_sentence(name):
    call, words = MISTAKES[name]
    with pytest.raises((ValueError, TypeError), match=rf"(?<!\w){re.escape(words)}(?!\w)") as caught:
        call()
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename.startswith(HOME)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= LONGEST
