"""`python -m service.engine.model.device DEVICE`: whether a device is there, for a caller that does not import torch.

Ends with 0, or with `REFUSED` after a line that is a sentence for the user.
"""

from __future__ import annotations

import sys
from typing import Final

REFUSED: Final = 3


def main(device: str) -> int:
    from service.engine.model.load import choose_device
    from service.engine.model.report import ModelError

    try:
        choose_device(device)
    except ModelError as error:
        print(error)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
