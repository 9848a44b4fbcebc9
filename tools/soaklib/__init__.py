"""The soak: real drivers under random faults and a steady load, judged by a verifier that shares no code with them."""
