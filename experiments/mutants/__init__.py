"""Small bugs are made by the hundred, and the tests have to notice them."""
