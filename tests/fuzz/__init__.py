"""Is there any input that brings a reader down, or that a reader repeats aloud?"""
