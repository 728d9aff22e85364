"""apron"""
from . import ndimage
