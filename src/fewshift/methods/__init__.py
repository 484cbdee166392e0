"""One method per file; each file's `build` makes it from a kit. `METHODS` is for the command line.

>>> from fewshift import methods
>>> methods.METHODS["tsa"] is methods.tsa
True
>>> methods.ABOUT["tsa"].source
'Li et al., CVPR 2022'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from fewshift.methods.about import About
from fewshift.methods.alfa import ABOUT as ALFA
from fewshift.methods.alfa import build as alfa
from fewshift.methods.bohb import ABOUT as BOHB
from fewshift.methods.bohb import ABOUT_LOGISTIC as BOHB_LOGISTIC
from fewshift.methods.bohb import build as bohb
from fewshift.methods.bohb import build_logistic as bohb_logistic
from fewshift.methods.build import BuilderOf
from fewshift.methods.fine_tune import ABOUT as FINE_TUNE
from fewshift.methods.fine_tune import ABOUT_NORMS as NORM_TUNE
from fewshift.methods.fine_tune import build as fine_tune
from fewshift.methods.fine_tune import build_norms as norm_tune
from fewshift.methods.flute import ABOUT as FLUTE
from fewshift.methods.flute import build as flute
from fewshift.methods.gap import ABOUT as GAP
from fewshift.methods.gap import ABOUT_APPROXIMATE as GAP_APPROXIMATE
from fewshift.methods.gap import ABOUT_EIGEN as GAP_EIGEN
from fewshift.methods.gap import build as gap
from fewshift.methods.gap import build_approximate as gap_approximate
from fewshift.methods.gap import build_eigen as gap_eigen
from fewshift.methods.gd import ABOUT as GD
from fewshift.methods.gd import ABOUT_TUNED as GD_TUNED
from fewshift.methods.gd import ABOUT_UNTRAINED_TSP as TSP_UNTRAINED
from fewshift.methods.gd import build as gd
from fewshift.methods.gd import build_tuned as gd_tuned
from fewshift.methods.gd import build_untrained_tsp as tsp_untrained
from fewshift.methods.linear_probe import ABOUT as LINEAR_PROBE
from fewshift.methods.linear_probe import build as linear_probe
from fewshift.methods.logistic import ABOUT as LOGISTIC
from fewshift.methods.logistic import build as logistic
from fewshift.methods.meta_curvature import ABOUT as META_CURVATURE
from fewshift.methods.meta_curvature import build as meta_curvature
from fewshift.methods.meta_sgd import ABOUT as META_SGD
from fewshift.methods.meta_sgd import build as meta_sgd
from fewshift.methods.mokd import ABOUT as MOKD
from fewshift.methods.mokd import build as mokd
from fewshift.methods.ncc import ABOUT as NCC
from fewshift.methods.ncc import build as ncc
from fewshift.methods.pa import ABOUT as PA
from fewshift.methods.pa import build as pa
from fewshift.methods.pmf import ABOUT as PMF
from fewshift.methods.pmf import build as pmf
from fewshift.methods.proto_maml import ABOUT as PROTO_MAML
from fewshift.methods.proto_maml import build as proto_maml
from fewshift.methods.simple_cnaps import ABOUT as SIMPLE_CNAPS
from fewshift.methods.simple_cnaps import build as simple_cnaps
from fewshift.methods.steady import ABOUT as TSP_START_STEADY
from fewshift.methods.steady import ABOUT_GD as GD_STEADY
from fewshift.methods.steady import build as tsp_start_steady
from fewshift.methods.steady import build_gd as gd_steady
from fewshift.methods.sur import ABOUT as SUR
from fewshift.methods.sur import build as sur
from fewshift.methods.ta2 import ABOUT as TA2
from fewshift.methods.ta2 import ABOUT_TUNED as TA2_TUNED
from fewshift.methods.ta2 import build as ta2
from fewshift.methods.ta2 import build_tuned as ta2_tuned
from fewshift.methods.trim import ABOUT as TRIM
from fewshift.methods.trim import build as trim
from fewshift.methods.tsa import ABOUT as TSA
from fewshift.methods.tsa import ABOUT_TUNED as TSA_TUNED
from fewshift.methods.tsa import build as tsa
from fewshift.methods.tsa import build_tuned as tsa_tuned
from fewshift.methods.tsp import ABOUT as TSP
from fewshift.methods.tsp import ABOUT_TUNED as TSP_TUNED
from fewshift.methods.tsp import build as tsp
from fewshift.methods.tsp import build_tuned as tsp_tuned
from fewshift.methods.tsp_start import ABOUT as TSP_START
from fewshift.methods.tsp_start import ABOUT_ALONE as START
from fewshift.methods.tsp_start import ABOUT_ALONE_TUNED as START_TUNED
from fewshift.methods.tsp_start import ABOUT_TUNED as TSP_START_TUNED
from fewshift.methods.tsp_start import build as tsp_start
from fewshift.methods.tsp_start import build_alone as start
from fewshift.methods.tsp_start import build_alone_tuned as start_tuned
from fewshift.methods.tsp_start import build_tuned as tsp_start_tuned
from fewshift.methods.tsp_ta2 import ABOUT as TSP_TA2
from fewshift.methods.tsp_ta2 import ABOUT_TUNED as TSP_TA2_TUNED
from fewshift.methods.tsp_ta2 import build as tsp_ta2
from fewshift.methods.tsp_ta2 import build_tuned as tsp_ta2_tuned
from fewshift.methods.urt import ABOUT as URT
from fewshift.methods.urt import build as urt
from fewshift.methods.white import ABOUT as WHITE
from fewshift.methods.white import ABOUT_START as START_WHITE
from fewshift.methods.white import ABOUT_START_TUNED as START_WHITE_TUNED
from fewshift.methods.white import ABOUT_TUNED as WHITE_TUNED
from fewshift.methods.white import build as white
from fewshift.methods.white import build_start as start_white
from fewshift.methods.white import build_start_tuned as start_white_tuned
from fewshift.methods.white import build_tuned as white_tuned
from fewshift.types import Method

__all__ = [
    "ABOUT",
    "METHODS",
    "About",
    "Builder",
    "alfa",
    "bohb",
    "bohb_logistic",
    "fine_tune",
    "flute",
    "gap",
    "gap_approximate",
    "gap_eigen",
    "gd",
    "gd_steady",
    "gd_tuned",
    "linear_probe",
    "logistic",
    "meta_curvature",
    "meta_sgd",
    "mokd",
    "ncc",
    "norm_tune",
    "pa",
    "pmf",
    "proto_maml",
    "simple_cnaps",
    "start",
    "start_tuned",
    "start_white",
    "start_white_tuned",
    "sur",
    "ta2",
    "ta2_tuned",
    "trim",
    "tsa",
    "tsa_tuned",
    "tsp",
    "tsp_start",
    "tsp_start_steady",
    "tsp_start_tuned",
    "tsp_ta2",
    "tsp_ta2_tuned",
    "tsp_tuned",
    "tsp_untrained",
    "urt",
    "white",
    "white_tuned",
]


Builder: TypeAlias = BuilderOf[Method]

# In the order of tables: how each is made from a kit, and what it says of itself.
_LISTED: Mapping[str, tuple[Builder, About]] = {
    "ncc": (ncc, NCC),
    "pa": (pa, PA),
    "tsa": (tsa, TSA),
    "tsa_tuned": (tsa_tuned, TSA_TUNED),
    "gd": (gd, GD),
    "gd_tuned": (gd_tuned, GD_TUNED),
    "gd_steady": (gd_steady, GD_STEADY),
    "tsp": (tsp, TSP),
    "tsp_tuned": (tsp_tuned, TSP_TUNED),
    "tsp_untrained": (tsp_untrained, TSP_UNTRAINED),
    "start": (start, START),
    "start_tuned": (start_tuned, START_TUNED),
    "tsp_start": (tsp_start, TSP_START),
    "tsp_start_tuned": (tsp_start_tuned, TSP_START_TUNED),
    "tsp_start_steady": (tsp_start_steady, TSP_START_STEADY),
    "white": (white, WHITE),
    "white_tuned": (white_tuned, WHITE_TUNED),
    "start_white": (start_white, START_WHITE),
    "start_white_tuned": (start_white_tuned, START_WHITE_TUNED),
    "ta2": (ta2, TA2),
    "ta2_tuned": (ta2_tuned, TA2_TUNED),
    "tsp_ta2": (tsp_ta2, TSP_TA2),
    "tsp_ta2_tuned": (tsp_ta2_tuned, TSP_TA2_TUNED),
    "mokd": (mokd, MOKD),
    "linear_probe": (linear_probe, LINEAR_PROBE),
    "logistic": (logistic, LOGISTIC),
    "fine_tune": (fine_tune, FINE_TUNE),
    "norm_tune": (norm_tune, NORM_TUNE),
    "pmf": (pmf, PMF),
    "proto_maml": (proto_maml, PROTO_MAML),
    "alfa": (alfa, ALFA),
    "gap": (gap, GAP),
    "gap_eigen": (gap_eigen, GAP_EIGEN),
    "gap_approximate": (gap_approximate, GAP_APPROXIMATE),
    "meta_sgd": (meta_sgd, META_SGD),
    "meta_curvature": (meta_curvature, META_CURVATURE),
    "sur": (sur, SUR),
    "urt": (urt, URT),
    "flute": (flute, FLUTE),
    "simple_cnaps": (simple_cnaps, SIMPLE_CNAPS),
    "trim": (trim, TRIM),
    "bohb": (bohb, BOHB),
    "bohb_logistic": (bohb_logistic, BOHB_LOGISTIC),
}
METHODS: Mapping[str, Builder] = {name: build for name, (build, _) in _LISTED.items()}
ABOUT: Mapping[str, About] = {name: about for name, (_, about) in _LISTED.items()}
