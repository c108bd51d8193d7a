"""What the logs of services that run say lately: failed requests, known complaints, signs of health."""
