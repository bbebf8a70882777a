"""The quickstart, and the helpers of the notebooks."""
