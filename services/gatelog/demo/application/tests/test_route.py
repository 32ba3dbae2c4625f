import unittest

import route


class Route(unittest.TestCase):
    def test_description(self):
        self.assertEqual(route.describe(2), "2000 m")


if __name__ == "__main__":
    unittest.main()
