"""Which replica stands where: each has a slot, and the one that replaces another takes over its slot."""

from __future__ import annotations


class ReplicaSlots:
    """Slots count from 0; the lowest free one is given to the next replica."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def knows(self, replica: str) -> bool:
        return replica in self._slots

    def slot_of(self, replica: str) -> int:
        slot = self._slots.get(replica)
        if slot is None:
            taken = set(self._slots.values())
            slot = next(n for n in range(len(taken) + 1) if n not in taken)
            self._slots[replica] = slot
            self._names[slot] = replica
        return slot

    def name_of(self, slot: int) -> str:
        """The replica that holds the slot, or held it last."""
        return self._names.get(slot, "")

    def free(self, replica: str) -> int | None:
        """Take the slot back; ``None`` if the replica has none."""
        return self._slots.pop(replica, None)

    def forget_all(self) -> None:
        """The replicas of a new service have other names, or the same for others."""
        self._slots.clear()
