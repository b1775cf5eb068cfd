"""HTTP: applications as a service, in our own form and in OpenAI's."""
