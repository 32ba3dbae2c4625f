import unittest

import route


class Route(unittest.TestCase):
    def test_description(self):
        self.assertEqual(route.describe(2), "2000 m")

    def test_miles(self):
        self.assertEqual(route.describe_miles(26.21875), "42195 m")


if __name__ == "__main__":
    unittest.main()
