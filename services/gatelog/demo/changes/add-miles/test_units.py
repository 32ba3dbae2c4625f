import unittest

import units


class Temperatures(unittest.TestCase):
    def test_water(self):
        self.assertEqual(units.celsius_to_fahrenheit(0), 32)
        self.assertEqual(units.celsius_to_fahrenheit(100), 212)


class Lengths(unittest.TestCase):
    def test_kilometres(self):
        self.assertEqual(units.kilometres_to_metres(1.5), 1500)

    def test_miles(self):
        self.assertAlmostEqual(units.miles_to_kilometres(26.21875), 42.19498, places=4)


if __name__ == "__main__":
    unittest.main()
