"""The costs of the server, as ratios measured side by side in one run:  python -m bench"""
