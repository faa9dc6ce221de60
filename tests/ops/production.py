"""Problems of the sizes that pay: Triton compiles another binary for every shape of a tile."""

from functools import partial

from bo_robust.ops.cases import Case, _arm_update, _dtc_round, _dtc_scores

PRODUCTION: dict[str, list[Case]] = {
    # Tiles of 64 x 32, 16 x 128 and 8 x 256 arms in float64, of 64 x 64, 32 x 128 and 8 x 512 in float32.
    "arm_update": [
        partial(_arm_update, s=1, n=1000),
        partial(_arm_update, s=64, n=1000, layouts=(False,)),
        partial(_arm_update, s=1, n=1 << 18, layouts=(False,)),
    ],
    # Several blocks of rows and of columns.
    "dtc_scores": [partial(_dtc_scores, r=500, d=6, num_arms=40)],
    "dtc_round": [partial(_dtc_round, n=4177, slots=256)],
}
